"""`vtax audit`: whether the clocks of environments can be believed."""
