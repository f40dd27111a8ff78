// The engine's requests and events (lanes/request.h), under the names its callers use.
#pragma once
#include "lanes/request.h"

namespace lockstep::engine {

using lanes::Event;
using lanes::EventSink;
using lanes::Finish;
using lanes::FinishReason;
using lanes::Priority;
using lanes::Request;
using lanes::Timings;
using lanes::Usage;

}  // namespace lockstep::engine
