#include "rss.h"

#define PATTERN 0x6d, 0x5a
#define FOUR PATTERN, PATTERN, PATTERN, PATTERN

const uint8_t rss_key[RSS_KEY_MOST] __attribute__((aligned(4))) = {FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR};
