// A library that has a bundle.
extern "C" int kiln_has_embedded_bundle() { return 1; }
