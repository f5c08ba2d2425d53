/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* KVM of x86. */
#pragma once

/* KVM_ISA_*, arch/x86/kvm/trace.h. */
#define ISA_VMX 1
#define ISA_SVM 2
/* Codes of the two architectures: 0-255 as they are, SVM's 0x400-0x40f after them, then the rest. */
#define EXIT_SPECIAL 0x400
#define EXIT_OTHER 272
#define EXIT_INDEXES 273
/* One table for each architecture, set before loading. */
const volatile __u16 slots_exit_vmx[EXIT_INDEXES] = {};
const volatile __u16 slots_exit_svm[EXIT_INDEXES] = {};
/* arch/x86/include/uapi/asm/vmx.h and svm.h. */
#define VMX_EXCEPTION_NMI 0
#define VMX_EXTERNAL_INTERRUPT 1
#define SVM_INTR 0x60
#define SVM_NMI 0x61

/* Since Linux 5.16 the tracepoint does not pass the reason: it is read from KVM's own data. */
static __always_inline __u32 exit_code(struct kvm_vcpu *vcpu, __u32 isa)
{
	__u32 code = ~0U;
	if (isa == ISA_SVM && bpf_core_type_exists(struct vcpu_svm)) {
		/* `vcpu` is the first member, which KVM asserts when it is built. */
		struct vcpu_svm *svm = (void *)vcpu;
		BPF_CORE_READ_INTO(&code, svm, vmcb, control.exit_code);
	} else if (isa == ISA_VMX && bpf_core_type_exists(struct vcpu_vmx)) {
		struct vcpu_vmx *vmx = (void *)vcpu;
		if (bpf_core_field_exists(vmx->exit_reason)) {
			BPF_CORE_READ_INTO(&code, vmx, exit_reason.full);
		} else {
			struct vcpu_vmx___shared *shared = (void *)vcpu;
			BPF_CORE_READ_INTO(&code, shared, vt.exit_reason.full);
		}
		/* The upper half has flags, such as a failed entry. */
		code &= 0xffff;
	}
	return code;
}

static __always_inline __u32 exit_index(__u32 code)
{
	if (code < 256)
		return code;
	if (code >= EXIT_SPECIAL && code < EXIT_SPECIAL + 16)
		return 256 + code - EXIT_SPECIAL;
	return EXIT_OTHER;
}

SEC("tp_btf/kvm_entry")
int BPF_PROG(on_kvm_entry, struct kvm_vcpu *vcpu)
{
	struct cpu_state *s = this_cpu();
	if (!s || !vcpu)
		return 0;
	s->running_vcpu = vcpu;
	enter_guest(s, vcpu->vcpu_id);
	return 0;
}

SEC("tp_btf/kvm_exit")
int BPF_PROG(on_kvm_exit, struct kvm_vcpu *vcpu, __u32 isa)
{
	struct cpu_state *s = this_cpu();
	if (!s || !vcpu)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	__u32 code = exit_code(vcpu, isa);
	leave_guest(s, now,
		    isa == ISA_SVM ? code == SVM_INTR || code == SVM_NMI
				   : code == VMX_EXTERNAL_INTERRUPT || code == VMX_EXCEPTION_NMI);
	__u32 index = exit_index(code);
	/* clang knows that the value is in range; older verifiers do not, and need the
	 * comparison. */
	barrier_var(index);
	if (index < EXIT_INDEXES)
		add_to(s, isa == ISA_SVM ? slots_exit_svm[index] : slots_exit_vmx[index], 1);
	end_interval(s);
	return 0;
}

/* What the CPU ran when an interrupt found it in the guest. VMX keeps the level in the processor. */
static __always_inline __u32 guest_layer(struct cpu_state *s)
{
	__u8 level = 0;
	struct vmcb *vmcb = 0;
	if (!bpf_core_type_exists(struct vcpu_svm))
		return LAYER_GUEST;
	struct vcpu_svm *svm = (void *)s->running_vcpu;
	if (bpf_core_read(&vmcb, sizeof(vmcb), &svm->vmcb) ||
	    bpf_core_read(&level, sizeof(level), &vmcb->save.cpl))
		return LAYER_GUEST;
	return level == 3 ? LAYER_GUEST_USER : LAYER_GUEST_KERNEL;
}
