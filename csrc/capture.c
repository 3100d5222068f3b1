#include "capture.h"

#include <stdio.h>
#include <stdlib.h>

#include <pcap/pcap.h>

enum { SNAP_LENGTH = 262144, NANOSECONDS = 1000000000 };

struct capture_reader {
	pcap_t *pcap;
};

struct capture_writer {
	pcap_t *pcap;
	pcap_dumper_t *dumper;
};

struct capture_reader *capture_open(const char *path, char error[CAPTURE_ERROR_SIZE])
{
	struct capture_reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL) {
		snprintf(error, CAPTURE_ERROR_SIZE, "out of memory");
		return NULL;
	}
	reader->pcap = pcap_open_offline_with_tstamp_precision(path, PCAP_TSTAMP_PRECISION_NANO, error);
	if (reader->pcap != NULL && pcap_datalink(reader->pcap) == DLT_EN10MB)
		return reader;
	if (reader->pcap != NULL)
		snprintf(error, CAPTURE_ERROR_SIZE, "%s holds frames of link type %d, not Ethernet", path,
			 pcap_datalink(reader->pcap));
	capture_close(reader);
	return NULL;
}

void capture_close(struct capture_reader *reader)
{
	if (reader != NULL && reader->pcap != NULL)
		pcap_close(reader->pcap);
	free(reader);
}

int capture_next(struct capture_reader *reader, const uint8_t **frame, uint32_t *captured, uint32_t *length,
		 uint64_t *nanoseconds, char error[CAPTURE_ERROR_SIZE])
{
	struct pcap_pkthdr *header;
	int rc = pcap_next_ex(reader->pcap, &header, frame);

	if (rc == PCAP_ERROR_BREAK)
		return 0;
	if (rc != 1) {
		snprintf(error, CAPTURE_ERROR_SIZE, "%s", pcap_geterr(reader->pcap));
		return -1;
	}
	if (header->ts.tv_sec < 0 || header->ts.tv_sec > UINT32_MAX) {
		snprintf(error, CAPTURE_ERROR_SIZE, "a frame has a timestamp outside of the years 1970 to 2106");
		return -1;
	}
	*captured = header->caplen;
	*length = header->len;
	*nanoseconds = (uint64_t)header->ts.tv_sec * NANOSECONDS + (uint64_t)header->ts.tv_usec;
	return 1;
}

struct capture_writer *capture_create(const char *path, char error[CAPTURE_ERROR_SIZE])
{
	struct capture_writer *writer = calloc(1, sizeof(*writer));

	if (writer == NULL) {
		snprintf(error, CAPTURE_ERROR_SIZE, "out of memory");
		return NULL;
	}
	writer->pcap = pcap_open_dead_with_tstamp_precision(DLT_EN10MB, SNAP_LENGTH, PCAP_TSTAMP_PRECISION_NANO);
	writer->dumper = writer->pcap != NULL ? pcap_dump_open(writer->pcap, path) : NULL;
	if (writer->dumper != NULL)
		return writer;
	snprintf(error, CAPTURE_ERROR_SIZE, "%s",
		 writer->pcap != NULL ? pcap_geterr(writer->pcap) : "out of memory");
	if (writer->pcap != NULL)
		pcap_close(writer->pcap);
	free(writer);
	return NULL;
}

void capture_write(struct capture_writer *writer, const void *frame, uint32_t length, uint64_t nanoseconds)
{
	struct pcap_pkthdr header = {.caplen = length, .len = length};

	header.ts.tv_sec = (time_t)(nanoseconds / NANOSECONDS);
	header.ts.tv_usec = (suseconds_t)(nanoseconds % NANOSECONDS);
	pcap_dump((u_char *)writer->dumper, &header, frame);
}

int capture_finish(struct capture_writer *writer)
{
	// A write that failed before leaves its mark on the stream; the flush then has nothing to fail on.
	int rc = pcap_dump_flush(writer->dumper) == 0 && !ferror(pcap_dump_file(writer->dumper)) ? 0 : -1;

	pcap_dump_close(writer->dumper);
	pcap_close(writer->pcap);
	free(writer);
	return rc;
}
