// Prints the signature of each request on standard input, for tests/tools/aws_signatures_test.py. Both are one line
// of JSON for each request.
#include "store/remote/aws_signature.hpp"

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

int main() {
  using namespace kiln::store;
  for (std::string line; std::getline(std::cin, line);) {
    const auto json = nlohmann::json::parse(line);
    const auto fields = [&json](const char* name) { return json.at(name).get<AwsRequest::Fields>(); };
    const AwsRequest request = {.method = json.at("method"),
                                .host = json.at("host"),
                                .path = json.at("path"),
                                .query = fields("query"),
                                .headers = fields("headers"),
                                .payload_hash = json.at("payload_hash")};
    const AwsCredentials credentials = {json.at("access_key"), json.at("secret_key"), json.at("token")};
    const std::chrono::sys_seconds time(std::chrono::seconds(json.at("time").get<std::int64_t>()));
    nlohmann::json signed_request = {{"target", request.target()}};
    for (const auto& [name, value] :
         sign_aws_request(request, credentials, json.at("region").get<std::string>(), "s3", time))
      signed_request["headers"][name] = value;
    std::cout << signed_request.dump() << '\n';
  }
  return 0;
}
