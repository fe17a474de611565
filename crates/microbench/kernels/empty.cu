// Nothing: what is left of a launch when there is no work.

extern "C" __global__ void empty() {}
