// The headers of nearly every test, compiled once (CMakeLists.txt: windlass_precompiled): half of a test's compile time.
