package kernel

import "golang.org/x/sys/cpu"

// vectorSets returns the sets that the processor runs; x/sys/cpu asks the operating system
// too whether it saves the registers.
func vectorSets() []*set {
	var sets []*set
	x := cpu.X86
	if x.HasAVX2 && x.HasFMA && x.HasBMI2 {
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
			sets = append(sets, &avx512)
		}
		sets = append(sets, &avx2)
	}
	return sets
}

var (
	avx512 = func() set { s := generic; s.name = "avx512"; s.gemm = gemmAVX512; s.fmaPeak = fmaPeakAVX512; return s }()
	avx2   = func() set { s := generic; s.name = "avx2"; s.gemm = gemmAVX2; s.fmaPeak = fmaPeakAVX2; return s }()
)
