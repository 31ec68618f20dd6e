// The headers of nearly every test, compiled once (CMakeLists.txt: windlass_precompiled); this halves a test's compile time.
