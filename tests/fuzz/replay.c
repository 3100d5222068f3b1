// Runs a fuzz target over the files that are named: its corpus, or the reproducer of a finding. Needs no clang.

#include "fuzz.h"

enum { LARGEST_INPUT = 1 << 20 };

static void run(const char *path)
{
	static uint8_t bytes[LARGEST_INPUT];
	FILE *file = fopen(path, "rb");
	uint8_t *copy;
	size_t size;

	if (file == NULL) {
		perror(path);
		exit(2);
	}
	size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	copy = at_end_of_block(bytes, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		fprintf(stderr, "%s\n", argv[i]); // the last one named is the one that failed
		run(argv[i]);
	}
	printf("%d inputs\n", argc - 1);
	return argc > 1 ? 0 : 2;
}
