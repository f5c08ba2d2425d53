/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* KVM of arm64, whose tracepoints pass no vCPU: the vCPU and its level are unknown. */
#pragma once

/* arch/arm64/include/asm/kvm_asm.h; the bit of a simultaneous SError is ignored. */
#define ARM_EXCEPTION_IRQ 0
#define ARM_EXCEPTION_CODE(ret) ((ret) & ~(1U << 31))

SEC("tp_btf/kvm_entry")
int BPF_PROG(on_kvm_entry, unsigned long address)
{
	struct cpu_state *s = this_cpu();
	if (s)
		enter_guest(s, -1);
	return 0;
}

SEC("tp_btf/kvm_exit")
int BPF_PROG(on_kvm_exit, int reason)
{
	struct cpu_state *s = this_cpu();
	if (!s)
		return 0;
	leave_guest(s, bpf_ktime_get_ns(),
		    ARM_EXCEPTION_CODE((__u32)reason) == ARM_EXCEPTION_IRQ);
	end_interval(s);
	return 0;
}

static __always_inline __u32 guest_layer(struct cpu_state *s)
{
	return LAYER_GUEST;
}
