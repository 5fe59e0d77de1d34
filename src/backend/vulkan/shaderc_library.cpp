// Nothing of its own: libkiln_shaderc.so consists of the static libraries it is linked from.
