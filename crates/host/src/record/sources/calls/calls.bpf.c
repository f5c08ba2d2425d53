/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#if defined(__TARGET_ARCH_arm64)
#include "arm64.h"
#else
#include "x86.h"
#endif

/* Numbers that the tables have; classes.rs fills them. */
#define CALLS 512
/* The slot of a call's class, and of the class that its flags put it in, where `call_rules` says how
 * to read them. */
const volatile __u16 slots_call[CALLS] = {};
const volatile __u16 slots_call_flagged[CALLS] = {};
const volatile __u16 call_rules[CALLS] = {};
/* The slot of the bytes that a call returns. */
const volatile __u16 slots_call_bytes[CALLS] = {};
const volatile __u16 slot_call_other = NO_SLOT;
const volatile __u16 slot_call_all = NO_SLOT;

/* Programs have no vDSO, so that their readings of clocks are calls. */
const volatile bool without_vdso = false;

/* Calls without a class, by their numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CALLS);
	__type(key, __u32);
	__type(value, __u64);
} other_calls SEC(".maps");

/* `enum Rule` of classes.rs. */
enum rule {
	RULE_OPEN = 1,
	RULE_OPENAT = 2,
	RULE_OPENAT2 = 3,
	RULE_NEWFSTATAT = 4,
	RULE_STATX = 5,
	RULE_UNLINKAT = 6,
	RULE_CLONE = 7,
	RULE_CLONE3 = 8,
	RULE_CLOCK = 9,
	RULE_READING = 10,
};

/* include/uapi/asm-generic/fcntl.h, include/uapi/linux/fcntl.h, include/uapi/linux/sched.h */
#define O_CREAT 0100
#define AT_REMOVEDIR 0x200
#define AT_EMPTY_PATH 0x1000
#define CLONE_THREAD 0x10000
/* Clocks that the vDSO reads (lib/vdso/gettimeofday.c): CLOCK_REALTIME, MONOTONIC, MONOTONIC_RAW,
 * REALTIME_COARSE, MONOTONIC_COARSE, BOOTTIME, TAI, by their numbers. */
#define VDSO_CLOCKS (1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 11)

/* The flags with which the structures of openat2 and clone3 begin. */
static __always_inline __u64 flags_at(__u64 address)
{
	__u64 flags = 0;
	bpf_probe_read_user(&flags, sizeof(flags), (void *)address);
	return flags;
}

/* Does a call of stat name an open file, not a path? A constant "" that is not in memory yet cannot
 * be read, and counts as empty: who passes the flag seldom passes a path. */
static __always_inline bool is_of_descriptor(__u64 flags, __u64 path)
{
	char first = 0;
	if (!(flags & AT_EMPTY_PATH))
		return false;
	bpf_probe_read_user(&first, sizeof(first), (void *)path);
	return !first;
}

static __always_inline bool is_flagged(struct pt_regs *regs, __u16 rule)
{
	switch (rule) {
	case RULE_OPEN:
		return ARGUMENT_2(regs) & O_CREAT;
	case RULE_OPENAT:
		return ARGUMENT_3(regs) & O_CREAT;
	case RULE_OPENAT2:
		return flags_at(ARGUMENT_3(regs)) & O_CREAT;
	case RULE_NEWFSTATAT:
		return is_of_descriptor(ARGUMENT_4(regs), ARGUMENT_2(regs));
	case RULE_STATX:
		return is_of_descriptor(ARGUMENT_3(regs), ARGUMENT_2(regs));
	case RULE_UNLINKAT:
		return ARGUMENT_3(regs) & AT_REMOVEDIR;
	case RULE_CLONE:
		return ARGUMENT_1(regs) & CLONE_THREAD;
	case RULE_CLONE3:
		return flags_at(ARGUMENT_1(regs)) & CLONE_THREAD;
	case RULE_CLOCK:
		return without_vdso && ARGUMENT_1(regs) < 32 &&
		       VDSO_CLOCKS >> ARGUMENT_1(regs) & 1;
	case RULE_READING:
		return without_vdso;
	}
	return false;
}

/* The index of a call in the tables; CALLS for one that they do not have. */
static __always_inline __u32 call_index(__u64 number)
{
	return number < CALLS && !is_call_of_32_bits() ? number : CALLS;
}

static __always_inline __u16 slot_of_call(struct pt_regs *regs, __u32 index)
{
	if (index >= CALLS)
		return slot_call_other;
	__u16 rule = call_rules[index];
	return rule && is_flagged(regs, rule) ? slots_call_flagged[index] : slots_call[index];
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long number)
{
	struct cpu_state *s = this_cpu();
	if (!s || !regs || !counts(s))
		return 0;
	__u32 index = call_index(number);
	barrier_var(index);
	__u16 slot = slot_of_call(regs, index);
	/* A row has a call either in both columns or in none. */
	if (slot_call_all < MAX_SLOTS)
		add_counted(s, slot_call_all, 1);
	if (slot < MAX_SLOTS)
		add_counted(s, slot, 1);
	end_interval(s);
	if (slot >= MAX_SLOTS || slot != slot_call_other)
		return 0;
	__u64 *count = bpf_map_lookup_elem(&other_calls, &index);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result)
{
	struct cpu_state *s = this_cpu();
	if (!s || !regs || result <= 0)
		return 0;
	__u32 index = call_index(CALL_NUMBER(regs));
	barrier_var(index);
	if (index < CALLS)
		add_to(s, slots_call_bytes[index], result);
	return 0;
}
