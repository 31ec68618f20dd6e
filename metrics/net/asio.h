// Short names for Asio and Beast. Slow to compile: headers of a program's pure part do not include it.
//
// Code that uses it runs on one thread and one io_context, without locks or strands. Operations are awaited in coroutines and
// return errors as error codes: `co_await op(..., to(ec))`.
#pragma once

#include <utility>  // Asio 1.18's awaitable.h uses std::exchange without it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/string_body.hpp>

#include "metrics/net/beast_parser.h"

namespace windlass::net {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = boost::asio::ip::tcp;
using boost::system::error_code;

// Completion token that awaits the operation and stores the error in `error`.
inline auto to(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

}  // namespace windlass::net
