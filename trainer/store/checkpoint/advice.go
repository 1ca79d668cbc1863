package checkpoint

// page is the least that a processor maps memory by.
const page = 4 << 10

// touch writes to memory that may never have been used, so that it is mapped. Its content is lost.
func touch(b []byte) {
	for i := 0; i < len(b); i += page {
		b[i] = 0
	}
	if len(b) > 0 {
		b[len(b)-1] = 0
	}
}
