/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
const volatile __u16 slot_kvm_entry = NO_SLOT;
const volatile __u16 slot_kvm_exit = NO_SLOT;
const volatile __u16 slot_kvm_guest_ns = NO_SLOT;
const volatile __u16 slot_kvm_vmm_ns = NO_SLOT;

/* A new machine is recorded from its first entry, or its first return to its program, on. */
static __always_inline void find_machine(struct cpu_state *s)
{
	if (!machines || s->since_ns)
		return;
	set_target(bpf_get_current_pid_tgid() >> 32, true);
	start_counting(s, bpf_ktime_get_ns());
}

/* KVM enters the guest; `vcpu` is -1 where it does not say which one. */
static __always_inline void enter_guest(struct cpu_state *s, __s32 vcpu)
{
	find_machine(s);
	__u64 now = bpf_ktime_get_ns(), left = s->exit_ns;
	s->exit_ns = 0;
	s->interrupted = 0;
	s->vm = bpf_get_current_pid_tgid() >> 32;
	s->vcpu = vcpu;
	barrier();
	if (left)
		add_to(s, slot_kvm_vmm_ns, now - left);
	s->entry_ns = now;
	add_to(s, slot_kvm_entry, 1);
	end_interval(s);
}

/* KVM has left the guest at `now`, for an interrupt or another reason. */
static __always_inline void leave_guest(struct cpu_state *s, __u64 now, bool interrupted)
{
	__u64 entered = s->entry_ns;
	s->interrupted = interrupted;
	s->entry_ns = 0;
	barrier();
	if (entered)
		add_to(s, slot_kvm_guest_ns, now - entered);
	s->exit_ns = now;
	add_to(s, slot_kvm_exit, 1);
}

/* What differs between architectures: the arguments of the tracepoints, and where the reason is. */
#if defined(__TARGET_ARCH_arm64)
#include "arm64.h"
#else
#include "x86.h"
#endif

static __always_inline void fill_guest_time(struct row *row, struct cpu_state *s, __u64 now)
{
	if (!counts(s))
		return;
	if (s->entry_ns && slot_kvm_guest_ns < slots && slot_kvm_guest_ns < MAX_SLOTS)
		row->values[slot_kvm_guest_ns] += now - s->entry_ns;
	if (s->exit_ns && slot_kvm_vmm_ns < slots && slot_kvm_vmm_ns < MAX_SLOTS)
		row->values[slot_kvm_vmm_ns] += now - s->exit_ns;
}

COUNT(kvm_page_fault)
COUNT(kvm_mmu_get_page)
COUNT(kvm_mmu_sync_page)
COUNT(kvm_mmu_unsync_page)
COUNT(kvm_mmu_prepare_zap_page)
COUNT(kvm_mmu_set_spte)
COUNT(kvm_mmu_zap_all_fast)
COUNT(kvm_inj_virq)
COUNT(kvm_inj_exception)
COUNT(kvm_cr)
COUNT(kvm_msr)
COUNT(kvm_pio)
COUNT(kvm_mmio)
COUNT(kvm_fast_mmio)
COUNT(kvm_emulate_insn)
COUNT(kvm_halt_poll_ns)
COUNT(kvm_hypercall)
COUNT(kvm_cpuid)
COUNT(kvm_invlpga)
COUNT(kvm_vcpu_wakeup)

const volatile __u16 slot_kvm_userspace_exit = NO_SLOT;

/* A KVM without hardware support (PVM) reports no entries: this tracepoint shows which machine
 * it is. */
SEC("tp_btf/kvm_userspace_exit")
int on_kvm_userspace_exit(void *ctx)
{
	struct cpu_state *s = this_cpu();
	if (!s)
		return 0;
	find_machine(s);
	if (!s->vm) {
		s->vm = bpf_get_current_pid_tgid() >> 32;
		s->vcpu = -1;
	}
	add_to(s, slot_kvm_userspace_exit, 1);
	end_interval(s);
	return 0;
}
