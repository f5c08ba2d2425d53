/* Counters that a program lets vtax record beside hardware and kernel events.
 *
 *     #include "vtax_counters.h"          before other headers, or compile with -D_DEFAULT_SOURCE
 *
 *     vtax_counter *requests = vtax_counter_register("requests");
 *     vtax_count(requests, 1);
 *
 *     vtax-host record --app requests --out run -- ./program
 *
 * The column is `app.requests`. A counter is a number in a page of shared memory: counting is one
 * atomic addition, without a system call, and whoever records reads the page. Where nobody wants
 * counters (there is no folder /run/vtax/app, or the one named by VTAX_APP_DIR) the additions go
 * to a place that nobody reads. Registering never fails: it returns such a place too when the name
 * is not of the letters a-z, 0-9, _ and . (52 at most), and from the 64th counter on.
 *
 * C99 or C++11, GCC or Clang, Linux. Threads may register and count at any time. After fork() the
 * child counts in its parent's page. The layout is docs/record.md.
 */
#ifndef VTAX_COUNTERS_H
#define VTAX_COUNTERS_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A counter; changed by vtax_count only. */
typedef uint64_t vtax_counter;

#define VTAX_PAGE_BYTES 4096
#define VTAX_COUNTERS 63
#define VTAX_NAME_BYTES 56
#define VTAX_LAYER "app."

struct vtax_page {
	uint64_t magic, version, sequence, tsc, time_ns, count, generation, reserved;
	struct {
		char name[VTAX_NAME_BYTES];
		uint64_t value;
	} counter[VTAX_COUNTERS];
};

struct vtax_counters_state {
	struct vtax_page *page;
	int opened;
	char lock;
	uint64_t unread;
};

/* One for the whole program, however many files include this one. */
__attribute__((weak)) struct vtax_counters_state vtax_counters_state;

/* The page of this process, or NULL. The file appears whole, and locked: the lock tells that the
 * process lives, and the descriptor stays open for it. */
static inline struct vtax_page *vtax_counters_open(void)
{
	const char *folder = getenv("VTAX_APP_DIR");
	char hidden[4096], path[4096];
	struct vtax_page *page = (struct vtax_page *)MAP_FAILED;
	struct stat status;
	int file, length;

	if (!folder || !*folder)
		folder = "/run/vtax/app";
	if (stat(folder, &status) || !S_ISDIR(status.st_mode))
		return NULL;
	length = snprintf(hidden, sizeof hidden, "%s/.%ld-XXXXXX", folder, (long)getpid());
	if (length < 0 || (size_t)length + sizeof ".page" > sizeof hidden)
		return NULL;
	file = mkstemp(hidden);
	if (file < 0)
		return NULL;
	/* The same name without the dot before it, and with an ending. */
	length = (int)strlen(folder) + 1;
	memcpy(path, hidden, (size_t)length);
	strcpy(path + length, hidden + length + 1);
	strcat(path, ".page");
	if (!fcntl(file, F_SETFD, FD_CLOEXEC) && !flock(file, LOCK_EX | LOCK_NB) &&
	    !ftruncate(file, VTAX_PAGE_BYTES))
		page = (struct vtax_page *)mmap(NULL, VTAX_PAGE_BYTES, PROT_READ | PROT_WRITE,
						MAP_SHARED, file, 0);
	if (page != (struct vtax_page *)MAP_FAILED) {
		page->version = 1;
		page->generation = 1;
		memcpy(&page->magic, "VTAXPAGE", 8);
		if (!rename(hidden, path))
			return page;
		munmap(page, VTAX_PAGE_BYTES);
	}
	unlink(hidden);
	close(file);
	return NULL;
}

static inline int vtax_counters_name_fits(const char *name)
{
	size_t length = name ? strlen(name) : 0, i;

	if (!length || length + sizeof VTAX_LAYER - 1 > VTAX_NAME_BYTES)
		return 0;
	for (i = 0; i < length; i++) {
		int letter = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
			     name[i] == '_';
		/* A dot stands between two letters. */
		int dot = name[i] == '.' && i > 0 && i + 1 < length && name[i - 1] != '.';
		if (!letter && !dot)
			return 0;
	}
	return 1;
}

static inline vtax_counter *vtax_counters_find(struct vtax_page *page, const char *whole)
{
	uint64_t i;

	for (i = 0; i < page->count; i++)
		if (!strncmp(page->counter[i].name, whole, VTAX_NAME_BYTES))
			return &page->counter[i].value;
	if (page->count == VTAX_COUNTERS)
		return NULL;
	/* Odd while the list changes, so that a reader does not see half of it. */
	__atomic_fetch_add(&page->sequence, 1, __ATOMIC_SEQ_CST);
	memcpy(page->counter[i].name, whole, strlen(whole));
	page->count++;
	page->generation++;
	__atomic_fetch_add(&page->sequence, 1, __ATOMIC_SEQ_CST);
	return &page->counter[i].value;
}

/* The counter `app.NAME`; the same one whenever it is asked for by the same name. */
static inline vtax_counter *vtax_counter_register(const char *name)
{
	struct vtax_counters_state *state = &vtax_counters_state;
	vtax_counter *counter = NULL;
	char whole[VTAX_NAME_BYTES + 1];

	if (!vtax_counters_name_fits(name))
		return &state->unread;
	strcpy(whole, VTAX_LAYER);
	strcat(whole, name);
	while (__atomic_test_and_set(&state->lock, __ATOMIC_ACQUIRE))
		;
	if (!state->opened) {
		state->opened = 1;
		state->page = vtax_counters_open();
	}
	if (state->page)
		counter = vtax_counters_find(state->page, whole);
	__atomic_clear(&state->lock, __ATOMIC_RELEASE);
	return counter ? counter : &state->unread;
}

/* Add to a counter. */
static inline void vtax_count(vtax_counter *counter, uint64_t amount)
{
	__atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
}

#ifdef __cplusplus
}
#endif
#endif
