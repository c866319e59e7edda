#define EXPORTED __attribute__((visibility("default")))

// argument is one argument of a call: a number, or a pointer or handle.
union argument {
	unsigned long long number;
	void *pointer;
};

// fakeNVML calls the function with a number of the table in Go.
int fakeNVML(int function, void *arguments);

// libraryPath is the path from which this library was loaded, or null.
const char *libraryPath(void);
