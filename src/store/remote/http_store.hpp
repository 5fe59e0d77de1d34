#pragma once

#include <memory>

#include <kiln/result.hpp>

#include "store/object_store.hpp"
#include "store/store_url.hpp"

namespace kiln::store {

/// Objects on an HTTP server, by PUT, GET, HEAD and DELETE of `<url>/<path>`; with layout=bazel of
/// `<url>/ac/<SHA-256 of the path>`. Folders are listed by PROPFIND (WebDAV); without it, and with layout=bazel,
/// list() is unsupported. Connects to nothing.
///
/// Sends the user and password of the URL (Basic), the password in the file of the option password_file, or the
/// token in the file of token_file (Bearer). Reads these files again once per second of use. Follows up to five
/// redirects, never from https to http; another server, or another port, gets no credentials, and no PUT and
/// DELETE. Proxies are those of the environment variables of curl, such as http_proxy and no_proxy. Bodies are
/// never decompressed.
///
/// Keeps connections open between calls. A child of this process cannot use the store: its calls fail with
/// unsupported, and destroying it there leaves the connections as they are.
///
/// Fails with invalid_request if the URL or a file that its options name cannot be used.
Result<std::unique_ptr<ObjectStore>> make_http_store(const StoreUrl& url);

}  // namespace kiln::store
