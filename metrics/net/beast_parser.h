// Beast's HTTP parser without its internal assertions, because a peer's bytes can fail one of them. An empty chunked body that
// arrived byte by byte crashed each of our programs (until Boost 1.86: github.com/boostorg/beast/pull/2861). Without the
// assertion the parser correctly asks for more bytes.
//
// All code includes the parser from here (tests/tidy checks this): two builds of it under one name would violate the
// one-definition rule.
#pragma once

// Headers that the parser includes keep their assertions.
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
#include <boost/assert.hpp>  // defines them again
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
