#include "server/openai/models_route.h"

#include "server/error_reply.h"
#include "server/json_text.h"

namespace lockstep::server::openai {
namespace {

std::string model_json(const Service& service) {
  std::string out;
  JsonText(out)
      .open_object()
      .text("id", service.name)
      .text("object", "model")
      .number("created", service.created)
      .text("owned_by", "lockstep")
      .text("family", service.model.family)
      .number("max_model_len", service.model.context)
      .close_object();
  return out;
}

}  // namespace

Answer list_models(Service& service, const http::Request&, const std::string&) {
  http::Response response;
  response.body = "{\"object\":\"list\",\"data\":[" + model_json(service) + "]}";
  return response;
}

Answer get_model(Service& service, const http::Request& request, const std::string& id) {
  if (id != service.name) {
    return error_response(Failure::kNoModel, "the model " + log_text(id, 128) + " is not served here; " + service.name + " is", "model", request.id);
  }
  http::Response response;
  response.body = model_json(service);
  return response;
}

}  // namespace lockstep::server::openai
