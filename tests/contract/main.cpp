#include "contract/contract.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  return lockstep::contract::run_contract(args);
}
