// Beast's HTTP parser, without the assertions inside of it: a peer's bytes could fail one of them. An empty chunked body that
// came in pieces of a byte ended each of our programs (until Boost 1.86: github.com/boostorg/beast/pull/2861); without the
// assertion the parser asks for more, as it should.
//
// Everybody includes the parser from here (tests/tidy): two programs' worth of it under one name would be one of the two.
#pragma once

// What the parser includes keeps its assertions.
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffer_traits.hpp>
#include <boost/beast/core/detail/clamp.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/detail/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/verb.hpp>
#include <boost/optional.hpp>

#define BOOST_DISABLE_ASSERTS
#include <boost/beast/http/basic_parser.hpp>
#undef BOOST_DISABLE_ASSERTS
#include <boost/assert.hpp>  // defines them anew
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
