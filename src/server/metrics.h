// GET /metrics: counters and gauges in Prometheus's text format, under vLLM's names where the meaning is the same. GET /memory: the ledger.
#pragma once
#include <string>

#include "engine/engine.h"
#include "server/service.h"

namespace lockstep::server {

std::string metrics_text(const engine::EngineStats& stats, const std::string& model_name);

Answer metrics(Service& service, const http::Request& request, const std::string& id);
Answer memory(Service& service, const http::Request& request, const std::string& id);

}  // namespace lockstep::server
