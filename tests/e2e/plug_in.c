/* A library that no program is linked with. */
__attribute__((visibility("default"))) int plugged_in(void) { return 1; }
