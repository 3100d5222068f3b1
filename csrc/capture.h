// Capture files, read and written through libpcap: pcap and pcapng in, pcap with nanoseconds out.
// [pure] One thread per capture.

#ifndef MAGLEV_CAPTURE_H
#define MAGLEV_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

enum { CAPTURE_ERROR_SIZE = 256 };

struct capture_reader;
struct capture_writer;

// NULL on failure, with a sentence in `error`: no such file, not a capture, or not of Ethernet frames.
struct capture_reader *capture_open(const char *path, char error[CAPTURE_ERROR_SIZE]);
void capture_close(struct capture_reader *reader);

// The next frame, valid until the next call. Returns 1, 0 at the end, -1 with a sentence in `error`.
int capture_next(struct capture_reader *reader, const uint8_t **frame, uint32_t *captured, uint32_t *length,
		 uint64_t *nanoseconds, char error[CAPTURE_ERROR_SIZE]);

struct capture_writer *capture_create(const char *path, char error[CAPTURE_ERROR_SIZE]);
void capture_write(struct capture_writer *writer, const void *frame, uint32_t length, uint64_t nanoseconds);

// Returns 0, or -1 when not everything reached the disk.
int capture_finish(struct capture_writer *writer);

#endif
