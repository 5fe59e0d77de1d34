#pragma once

#include <memory>

#include <kiln/result.hpp>

#include "store/object_store.hpp"
#include "store/store_url.hpp"

namespace kiln::store {

/// Objects in a bucket of S3, at PREFIX/PATH. The options of the URL, else the variables of AWS, else the profile
/// in AWS's file `config`, say where the server is; see docs/sharing.md. Connects to nothing.
///
/// Signs each request. Credentials are those of the environment, unless the URL names a profile; else those of
/// AWS's file `credentials`, which is read again once per second of use. Redirects are errors: the message says
/// which region the bucket is in. A server that is overloaded is asked again if it says when, and that is within
/// the limit of the call.
///
/// Keeps connections open between calls. A child of this process cannot use the store: its calls fail with
/// unsupported.
///
/// Fails with invalid_request if the URL, the region, the endpoint or the file of certificates cannot be used.
Result<std::unique_ptr<ObjectStore>> make_s3_store(const StoreUrl& url);

}  // namespace kiln::store
