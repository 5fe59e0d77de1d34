// A stand-in for NVRTC of CUDA FAKE_MAJOR, which has every function and compiles nothing.

#include <cstddef>

extern "C" {

int nvrtcVersion(int* major, int* minor) { return *major = FAKE_MAJOR, *minor = 3, 0; }
int nvrtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*) { return 1; }
int nvrtcAddNameExpression(void*, const char*) { return 1; }
int nvrtcGetLoweredName(void*, const char*, const char**) { return 1; }
int nvrtcDestroyProgram(void**) { return 1; }
int nvrtcCompileProgram(void*, int, const char* const*) { return 1; }
int nvrtcGetProgramLogSize(void*, std::size_t*) { return 1; }
int nvrtcGetProgramLog(void*, char*) { return 1; }
int nvrtcGetCUBINSize(void*, std::size_t*) { return 1; }
int nvrtcGetCUBIN(void*, char*) { return 1; }
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_OF_THE_STAND_IN"; }
int nvrtcGetPTXSize(void*, std::size_t*) { return 1; }
int nvrtcGetPTX(void*, char*) { return 1; }
int nvrtcGetNumSupportedArchs(int*) { return 1; }
int nvrtcGetSupportedArchs(int*) { return 1; }

}  // extern "C"
