// A program, or a library, that has a bundle.
int main() { return 0; }
