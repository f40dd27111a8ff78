// The commands: each returns the exit code (flags.h).
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "cli/flags.h"
#include "engine/engine.h"

namespace lockstep::cli {

int serve(const Options& options);
int run(const Options& options);
int info(const Options& options);
int bench(const Options& options);
int contract(const Options& options);

/// The folder a command works on: the one given, else LOCKSTEP_DEFAULT_MODEL, else models/tiny-qwen3_5-mlx-4bit in a folder above the
/// program (a build of the sources). kNotFound says what was looked for.
Result<std::filesystem::path> model_folder(const std::string& given);

/// Engine options of the flags that serve and run share. kInvalidArgument: an instruction set this machine lacks.
Result<engine::EngineOptions> engine_options(const Options& options);

/// Prints "lockstep: words" to standard error; returns kExitFailed.
int fail(const Error& error);

/// Whether standard output (1) or error (2) is a terminal; colours and progress are for terminals alone.
bool is_terminal(int descriptor);

/// A progress line on standard error for EngineOptions::progress; empty where standard error is no terminal.
std::function<void(double fraction, const std::string& what)> loading_progress();
/// Erases the progress line.
void end_progress();

}  // namespace lockstep::cli
