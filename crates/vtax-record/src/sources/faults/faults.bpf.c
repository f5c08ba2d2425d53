COUNT(page_fault_user)
COUNT(page_fault_kernel)
