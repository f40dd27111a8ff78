// lockstep contract: the kernel contract of tests/contract on this machine.
#include <cstdio>

#include "cli/commands.h"
#ifdef LOCKSTEP_HAS_CONTRACT
#include "contract/contract.h"
#endif

namespace lockstep::cli {

int contract([[maybe_unused]] const Options& options) {
#ifdef LOCKSTEP_HAS_CONTRACT
  std::vector<std::string> args;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) args.insert(args.end(), {flag, value});
  };
  add("--seed", options.contract_seed);
  add("--filter", options.filter);
  add("--isa", options.isa);
  if (options.list) args.push_back("--list");
  if (options.verbose) args.push_back("--verbose");
  return contract::run_contract(args);
#else
  return fail({ErrorCode::kUnsupported, "this build has no contract suite (it was configured with LOCKSTEP_TESTS=OFF)", ""});
#endif
}

}  // namespace lockstep::cli
