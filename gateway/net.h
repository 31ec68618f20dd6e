// Short names for metrics/net (Asio, Beast, HTTP) in the gateway's shell, the part that does I/O. Slow to compile: only .cc
// files and the shell's own headers include it.
//
// The whole shell runs on one thread and one io_context, without locks or strands.
#pragma once

#include "metrics/net/asio.h"
#include "metrics/net/http_server.h"
#include "metrics/net/stream.h"

namespace windlass::gateway {

namespace asio = net::asio;
namespace beast = net::beast;
namespace http = net::http;
namespace ssl = net::ssl;
using net::error_code;
using net::HttpRequest;
using net::HttpServer;
using net::Stream;
using net::tcp;
using net::to;

}  // namespace windlass::gateway
