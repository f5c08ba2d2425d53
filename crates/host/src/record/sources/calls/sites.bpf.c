/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Where in the programs calls are made: each call is counted under its stack, of files and offsets
 * in them, so that it does not matter where the files were mapped and whether the process still
 * runs. */
#if defined(__TARGET_ARCH_x86)

#define SITES (1 << 15)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SITES);
	__type(key, struct site);
	__type(value, __u64);
} site_counts SEC(".maps");

SEC("tp_btf/sys_enter")
int BPF_PROG(at_sys_enter, struct pt_regs *regs, long number)
{
	struct cpu_state *s = this_cpu();
	__u32 zero = WALK_OF_CALL;
	struct walk *walk = bpf_map_lookup_elem(&site_walk, &zero);
	struct site_state *state = bpf_map_lookup_elem(&site_state, &zero);
	if (!s || !regs || !walk || !state || !counts(s))
		return 0;
	__u16 slot = slot_of_call(regs, call_index(number));
	if (slot >= MAX_SLOTS)
		return 0;
	__builtin_memset(&walk->site, 0, sizeof(walk->site));
	walk->site.slot = slot;
	bpf_get_current_comm(walk->site.comm, sizeof(walk->site.comm));
	walk->ip = regs->ip;
	walk->sp = regs->sp;
	walk->bp = regs->bp;
	if (!is_call_of_32_bits()) {
		struct climb upwards = { .walk = walk };
		bpf_loop(FRAMES, climb, &upwards, 0);
	}
	__u64 none = 0, *count = bpf_map_lookup_elem(&site_counts, &walk->site);
	if (!count) {
		bpf_map_update_elem(&site_counts, &walk->site, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&site_counts, &walk->site);
	}
	__sync_fetch_and_add(count ? count : &state->lost, 1);
	return 0;
}
#endif
