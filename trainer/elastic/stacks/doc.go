// Package stacks compares the Python stacks of a job's ranks: it names the line at which each one
// stands, groups the ranks, and names those that differ from most.
//
//	report := stacks.Compare([]stacks.Rank{{Rank: 0, Text: text, Call: "receive"}, …})
//	fmt.Println(report) // 7 ranks: all_reduce at train.py:41; rank 3: sleep at data.py:12
//	report.Differ       // [3]
//
// Python's faulthandler writes the texts: all threads, the main thread last, and of each the
// innermost call first. A text shows no calls of C functions, such as time.sleep: the system call
// in which the main thread waits is shown instead.
//
//	File "torch/distributed/distributed_c10d.py", line 2501 in all_reduce   the library's call
//	File "torch/distributed/c10d_logger.py", line 75 in wrapper             skipped
//	File "/code/train.py", line 41 in step                                  the user's line
//	File "/code/train.py", line 90 in <module>
//	File "<elasticdl fork server>", line 560 in run_script                  dropped
//	                                                       all_reduce at train.py:41
//
// Laws:
//
//  1. Each rank is in one group, and the order of the ranks changes nothing.
//  2. A rank differs only if most others stand at another place: more than half of all ranks, or
//     all others of two ranks that wait in a collective operation. If all ranks stand at one place,
//     none differs.
//  3. A text that is damaged or cut yields the frames that are whole. No text makes the package
//     fail.
//  4. Two files of one name are shown with as many parts of their paths as distinguish them.
package stacks
