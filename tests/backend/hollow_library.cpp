// A library with nothing in it, under the names of those that lead to drivers.
