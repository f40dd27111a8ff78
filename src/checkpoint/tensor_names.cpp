#include "checkpoint/weights.h"

namespace lockstep::checkpoint {

std::string normalised_name(const std::string& tensor_name) {
  for (const char* prefix : {"language_model.model.", "model.language_model.", "model.", "language_model."})
    if (tensor_name.starts_with(prefix)) return tensor_name.substr(std::char_traits<char>::length(prefix));
  return tensor_name;
}

}  // namespace lockstep::checkpoint
