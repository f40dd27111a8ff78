// docs/api.md is what the tables say. After a change of them: run this test with LOCKSTEP_WRITE_DOCS=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "server/server.h"

namespace lockstep::server {
namespace {

TEST(ApiPage, IsWhatTheTablesPrint) {
  const std::string path = std::string(LOCKSTEP_SOURCE_DIR) + "/docs/api.md";
  if (std::getenv("LOCKSTEP_WRITE_DOCS")) std::ofstream(path) << fields_markdown();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), fields_markdown()) << "run this test with LOCKSTEP_WRITE_DOCS=1 to print the page anew";
}

}  // namespace
}  // namespace lockstep::server
