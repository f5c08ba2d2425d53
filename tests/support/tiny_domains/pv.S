/* A paravirtualized kernel that makes N of each: the hypercall xen_version, CPUID that Xen
   emulates, and updates of an entry of a page table. Then it powers off. */
#include "notes.h"

NOTE(GUEST_OS, .asciz "vtax-tiny")
NOTE(XEN_VERSION, .asciz "xen-3.0")
NOTE(LOADER, .asciz "generic")
NOTE(VIRT_BASE, .quad 0)
NOTE(ENTRY, .quad _start)

#define PT_BASE 88 /* in struct start_info */
#define MACHINE_TO_PHYS 0xffff800000000000
#define ADDRESS_MASK 0x000ffffffffff000
#define SOFTWARE_BIT 0x200
#define DOMID_SELF 0x7ff0

/* `%rsi` has the start_info, `%rsp` a stack. A page is where its number says: VIRT_BASE is 0. */
.globl _start
_start:
    cld
    mov PT_BASE(%rsi), %r12

    mov $N, %ebp
1:  mov $XEN_VERSION_CALL, %eax
    xor %edi, %edi /* XENVER_version */
    xor %esi, %esi
    syscall
    dec %ebp
    jnz 1b

    mov $N, %ebp
1:  xor %eax, %eax
    ud2a
    .ascii "xen"
    cpuid
    dec %ebp
    jnz 1b

    /* Follow the tables to the entry of `page`: the table is at %r12 and, as the machine has it,
       at %r13. */
    mov $39, %ecx
    lea page(%rip), %r14
walk:
    mov %r14, %rax
    shr %cl, %rax
    and $511, %eax
    mov (%r12, %rax, 8), %rdx
    cmp $12, %ecx
    je found
    mov $ADDRESS_MASK, %r13
    and %rdx, %r13
    mov %r13, %rdx
    shr $12, %rdx
    mov $MACHINE_TO_PHYS, %rbx
    mov (%rbx, %rdx, 8), %r12
    shl $12, %r12
    sub $9, %ecx
    jmp walk
found:
    lea (%r13, %rax, 8), %r13
    mov %r13, update(%rip)
    mov %rdx, update + 8(%rip)

    mov $N, %ebp
1:  xorq $SOFTWARE_BIT, update + 8(%rip)
    mov $MMU_UPDATE, %eax
    lea update(%rip), %rdi
    mov $1, %esi
    xor %edx, %edx
    mov $DOMID_SELF, %r10d
    syscall
    test %rax, %rax
    jnz crash
    dec %ebp
    jnz 1b

    mov $SCHED_OP, %eax
    mov $SCHEDOP_SHUTDOWN, %edi
    lea poweroff(%rip), %rsi
    syscall
crash:
    ud2a

.data
poweroff: .long 0
.balign 4096
update: .quad 0, 0
.balign 4096
page: .skip 4096
.section .note.GNU-stack, "", @progbits
