/* A library that nobody is linked with. */
__attribute__((visibility("default"))) int plugged_in(void) { return 1; }
