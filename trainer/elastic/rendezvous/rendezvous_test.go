package rendezvous

import (
	"slices"
	"testing"
	"time"
)

// three is the script of a world of three workers that have completed rounds.
const three = `
	expect 3
	join 0
	join 1
	join 2 -> form 1.1 worker-0, worker-1, worker-2
`

// aside is the same script, but worker 1 takes no part in the rounds.
const aside = `
	expect 3
	join 0
	join 1 aside 1
	join 2 -> form 1.1 worker-0, worker-1, worker-2
`

func TestStories(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy Policy
		script string
	}{
		{"all that are expected need not wait", Policy{}, three + `
			due never
			state 0
			wait 1h`},
		{"nobody is expected", Policy{}, `
			join 4 -> form 1.1 worker-4`},
		{"settle without those that are late", Policy{}, `
			state 0 waiting for 1 of at least 1 workers
			expect 3
			due never
			join 2
			due 300ms
			wait 200ms
			join 0
			due 100ms
			state 2 waiting for 1 more workers to join
			wait 99ms
			wait 1ms -> form 1.1 worker-2, worker-0`},
		{"settle from when there are enough", Policy{Min: 2, Settle: time.Second}, `
			expect 9
			join 0
			due never
			wait 10s
			state 1 waiting for 1 of at least 2 workers
			join 1
			due 1s
			wait 500ms
			leave 0 killed
			due never
			join 2
			due 1s
			wait 1s -> form 1.1 worker-1, worker-2`},
		{"the first world waits for all that are expected", Policy{Gather: 10 * time.Second}, `
			expect 3
			join 2
			due 10s
			wait 1s
			join 0
			state 2 waiting for 1 of 3 workers
			due 9s
			wait 8s
			join 1 -> form 1.1 worker-2, worker-0, worker-1`},
		{"the first world does not wait for ever", Policy{Gather: 10 * time.Second}, `
			expect 3
			join 2
			wait 9999ms
			wait 1ms -> form 1.1 worker-2
			due never
			join 0
			due 300ms`},
		{"it is known that nobody else comes", Policy{Gather: 10 * time.Second}, `
			expect 2
			join 0
			wait 3s
			expect 1 -> form 1.1 worker-0`},
		{"one that had no state is replaced", Policy{Gather: 10 * time.Second}, three + `
			leave 1 killed -> abort worker-0, worker-2 from 1: worker-1 left: killed
			back 0
			due never
			back 2
			state 2 waiting for 1 of 3 workers
			due 10s
			wait 9s
			join 3 -> anew: nobody who has the state is left | form 2.2 worker-0, worker-2, worker-3: worker-1 left: killed`},
		{"one that had no state is not replaced in time", Policy{Gather: 10 * time.Second}, three + `
			leave 1 killed -> abort worker-0, worker-2 from 1: worker-1 left: killed
			back 0
			back 2
			wait 10s -> anew: nobody who has the state is left | form 2.2 worker-0, worker-2: worker-1 left: killed
			back 2 -> abort worker-0 from 2: worker-2 came back
			back 0 -> anew: nobody who has the state is left | form 2.3 worker-0, worker-2: worker-2 came back`},
		{"nobody waits for one that is lost while another has the state", Policy{Gather: 10 * time.Second}, three + `
			leave 1 killed -> abort worker-0, worker-2 from 1: worker-1 left: killed
			back 0
			back 2 round 3 -> form 2.2 worker-0, worker-2 with round 3 of rank 1: worker-1 left: killed`},
		{"nobody waits for more than the last world had", Policy{Gather: 10 * time.Second}, three + `
			expect 5
			back 1 -> abort worker-0, worker-2 from 1: worker-1 came back
			back 0
			back 2 -> anew: nobody who has the state is left | form 1.2 worker-0, worker-1, worker-2: worker-1 came back`},
		{"one leaves without a state and is replaced", Policy{Gather: 10 * time.Second}, three + `
			depart 1 -> recall worker-0, worker-1, worker-2 from 1: worker-1 to leave
			back 0
			back 2
			back 1 -> release worker-1
			state 2 waiting for 1 of 3 workers
			join 3 -> anew: nobody who has the state is left | form 2.2 worker-0, worker-2, worker-3: worker-1 left`},
		{"one leaves without a state and is not missed", Policy{Gather: 10 * time.Second}, three + `
			depart 1 -> recall worker-0, worker-1, worker-2 from 1: worker-1 to leave
			expect 2
			back 0
			back 2
			back 1 -> release worker-1 | anew: nobody who has the state is left | form 2.2 worker-0, worker-2: worker-1 left`},
		{"all are lost and replaced", Policy{Gather: 10 * time.Second}, three + `
			leave 0 killed -> abort worker-1, worker-2 from 1: worker-0 left: killed
			leave 1 killed
			leave 2 killed
			join 3
			due 10s
			join 4
			join 5 -> anew: nobody who has the state is left | form 2.2 worker-3, worker-4, worker-5: worker-0 left: killed`},
		{"fewer are expected than thought", Policy{}, `
			expect 3
			join 0
			join 1
			expect 2 -> form 1.1 worker-0, worker-1`},
		{"one leaves", Policy{}, three + `
			leave 1 killed (signal 9) -> abort worker-0, worker-2 from 1: worker-1 left: killed (signal 9)
			leave 1 pod gone
			leave 1/1 silent
			state 0 waiting for worker-0, worker-2 to come back
			broken 2 suspect 1 round 7
			state 1 waiting for worker-0 to come back
			broken 0 suspect 1 round 6 -> form 2.2 worker-0, worker-2 with round 7 of rank 1: worker-1 left: killed (signal 9)
			due never`},
		{"one whose links the others miss first", Policy{}, three + `
			broken 2 suspect 1 round 7 -> abort worker-0, worker-1 from 1: worker-2 lost its link to worker-1
			broken 0 round 7
			leave 1 killed -> form 2.2 worker-0, worker-2 with round 7 of rank 0, 1: worker-2 lost its link to worker-1`},
		{"a link fails and nobody is dead", Policy{}, three + `
			broken 2 round 7 -> abort worker-0, worker-1 from 1: worker-2 lost a link
			broken 0 suspect 2 round 7
			back 1 round 8 -> form 1.2 worker-0, worker-1, worker-2 with round 8 of rank 1: worker-2 lost a link
			due never`},
		{"one comes back unasked", Policy{}, three + `
			back 1 round 3 -> abort worker-0, worker-2 from 1: worker-1 came back`},
		{"one that stood aside comes to take part", Policy{}, aside + `
			back 1 round 3 -> recall worker-0, worker-2 from 1: worker-1 has come to take part
			back 0 round 4
			back 2 round 4 -> form 1.2 worker-0, worker-2, worker-1 with round 4 of rank 0, 1: worker-1 has come to take part`},
		{"one that stood aside gets the last rank of those that stay", Policy{}, `
			expect 2
			join 0
			join 1 -> form 1.1 worker-0, worker-1
			back 0 aside 1 -> abort worker-1 from 1: worker-0 came back
			back 1 round 4 -> form 1.2 worker-1, worker-0 with round 4 of rank 0: worker-0 came back
			back 0 -> recall worker-1 from 2: worker-0 has come to take part
			expect 3
			join 2
			back 1 round 5 -> form 2.3 worker-1, worker-0, worker-2 with round 5 of rank 0: worker-0 has come to take part`},
		{"one dies after another that stood aside came", Policy{}, aside + `
			back 1 -> recall worker-0, worker-2 from 1: worker-1 has come to take part
			leave 2 killed -> abort worker-0 from 1: worker-2 left: killed`},
		{"one that has finished is lost", Policy{}, three + `
			finish 1
			leave 1 killed
			leave 1 killed
			finish 0
			over false
			finish 2
			over true
			join 3`},
		{"one is lost after another has finished", Policy{}, three + `
			finish 1
			leave 2 killed -> abort worker-0, worker-1 from 1: worker-2 left: killed
			back 1
			back 0 round 7 -> form 2.2 worker-0, worker-1 with round 7 of rank 0: worker-2 left: killed
			finish 0
			over false`},
		{"one comes after another has finished", Policy{}, three + `
			finish 1
			expect 4
			join 3
			due never
			state 1
			broken 0 round 3 -> abort worker-1, worker-2 from 1: worker-0 lost a link
			back 1
			back 2 -> form 2.2 worker-0, worker-1, worker-2, worker-3 with round 3 of rank 0: worker-0 lost a link`},
		{"one that has finished is asked to leave, and one that is asked to leave finishes", Policy{}, three + `
			finish 1
			depart 1 -> release worker-1
			depart 0
			finish 0 -> release worker-0
			over false
			finish 2
			over true`},
		{"one that took no part comes when another has finished", Policy{}, aside + `
			finish 0
			back 1
			over false
			finish 2
			over true`},
		{"one breaks off after a recall", Policy{}, three + `
			expect 4
			join 3 -> recall worker-0, worker-1, worker-2 from 1: worker-3 to join
			back 0 round 5
			fell 1 -> abort worker-2 from 1: worker-3 to join
			back 2 round 4 -> form 2.2 worker-0, worker-1, worker-2, worker-3 with round 5 of rank 0: worker-3 to join`},
		{"it dies before it has fetched its world", Policy{Min: 2}, three + `
			leave 2 killed -> abort worker-0, worker-1 from 1: worker-2 left: killed
			back 0 round 0
			back 1 round 0 -> form 2.2 worker-0, worker-1 with round 0 of rank 0, 1: worker-2 left: killed`},
		{"all die at once", Policy{Min: 2}, three + `
			leave 0 killed -> abort worker-1, worker-2 from 1: worker-0 left: killed
			leave 1 killed
			leave 2 killed
			state 0 waiting for 2 of at least 2 workers
			due never
			join 3 round 9 from 1
			join 4
			due 300ms
			join 5 -> anew: nobody who has the state is left | form 2.2 worker-3, worker-4, worker-5: worker-0 left: killed`},
		{"a newcomer", Policy{}, three + `
			expect 4
			join 3 -> recall worker-0, worker-1, worker-2 from 1: worker-3 to join
			due never
			back 1 round 5
			back 0 round 5
			back 2 round 5 -> form 2.2 worker-0, worker-1, worker-2, worker-3 with round 5 of rank 0, 1, 2: worker-3 to join`},
		{"newcomers wait for one another", Policy{}, three + `
			expect 5
			join 3
			due 300ms
			state 1
			wait 250ms
			join 7 -> recall worker-0, worker-1, worker-2 from 1: worker-3, worker-7 to join`},
		{"newcomers do not wait for ever", Policy{}, three + `
			expect 9
			join 3
			wait 200ms
			join 4
			wait 100ms -> recall worker-0, worker-1, worker-2 from 1: worker-3, worker-4 to join
			join 5
			back 0 round 2
			back 1 round 2
			back 2 round 2 -> form 2.2 worker-0, worker-1, worker-2, worker-3, worker-4, worker-5 with round 2 of rank 0, 1, 2: worker-3, worker-4 to join`},
		{"a newcomer dies while it waits", Policy{}, three + `
			expect 5
			join 3
			leave 3 killed
			due never
			join 4
			due 300ms`},
		{"a newcomer dies after the recall", Policy{}, three + `
			expect 4
			join 3 -> recall worker-0, worker-1, worker-2 from 1: worker-3 to join
			leave 3 killed
			back 0 round 2
			back 1 round 2
			back 2 round 2 -> form 1.2 worker-0, worker-1, worker-2 with round 2 of rank 0, 1, 2: worker-3 to join`},
		{"one dies after the recall", Policy{}, three + `
			expect 4
			join 3 -> recall worker-0, worker-1, worker-2 from 1: worker-3 to join
			back 2 round 2
			leave 0 killed -> abort worker-1 from 1: worker-0 left: killed
			broken 1 suspect 0 round 2 -> form 2.2 worker-1, worker-2, worker-3 with round 2 of rank 0, 1: worker-0 left: killed`},
		{"one joins while the ring forms", Policy{}, three + `
			leave 0 killed -> abort worker-1, worker-2 from 1: worker-0 left: killed
			back 1 round 4
			join 3
			due never
			back 2 round 4 -> form 2.2 worker-1, worker-2, worker-3 with round 4 of rank 0, 1: worker-0 left: killed`},
		{"it comes back under its number", Policy{}, three + `
			join 1/2 from 1 round 9 -> abort worker-0, worker-2 from 1: worker-1 was started again
			back 1 from 1 round 9
			leave 1/1 killed
			back 0 round 4
			back 2 round 4 -> form 2.2 worker-0, worker-2, worker-1 with round 4 of rank 0, 1: worker-1 was started again`},
		{"it comes back under its number while it waits", Policy{}, `
			expect 2
			join 1
			join 1/2
			leave 1/1 killed
			join 0 -> form 1.1 worker-1, worker-0`},
		{"too few are left", Policy{Min: 3}, three + `
			leave 0 killed -> abort worker-1, worker-2 from 1: worker-0 left: killed
			back 1 round 4
			back 2 round 5
			due never
			state 2 waiting for 1 of at least 3 workers
			join 3 -> form 2.2 worker-1, worker-2, worker-3 with round 5 of rank 1: worker-0 left: killed`},
		{"a spare waits for room", Policy{Max: 3}, three + `
			expect 5
			join 3
			join 4
			due never
			state 2
			leave 1 killed -> abort worker-0, worker-2 from 1: worker-1 left: killed
			back 0 round 4
			back 2 round 4 -> form 2.2 worker-0, worker-2, worker-3 with round 4 of rank 0, 1: worker-1 left: killed
			due never`},
		{"what is told twice or late", Policy{}, three + `
			join 1
			join 1 round 8
			broken 2 round 7 -> abort worker-0, worker-1 from 1: worker-2 lost a link
			broken 2 suspect 0 round 8
			back 0 round 7
			back 1 round 7 -> form 1.2 worker-0, worker-1, worker-2 with round 7 of rank 0, 1, 2: worker-2 lost a link
			broken 2 from 1 round 7
			back 0 from 1 round 7
			back 0 from 9 round 7
			join 1
			state 0
			leave 1 killed -> abort worker-0, worker-2 from 2: worker-1 left: killed
			broken 1 from 2 round 7
			join 1
			state 0 waiting for worker-0, worker-2 to come back`},
		{"a word of one that left before it came", Policy{}, `
			leave 5/1 killed
			leave 5/2 killed
			join 5/2
			state 0 waiting for 1 of at least 1 workers
			join 5/3 -> form 1.1 worker-5`},
		{"the state is lost although somebody lives", Policy{}, three + `
			leave 0 killed -> abort worker-1, worker-2 from 1: worker-0 left: killed
			back 1 round -1
			back 2 -> anew: nobody who has the state is left | form 2.2 worker-1, worker-2: worker-0 left: killed`},
		{"a suspect stays away, and comes back", Policy{}, three + `
			broken 2 suspect 1 round 7 -> abort worker-0, worker-1 from 1: worker-2 lost its link to worker-1
			due never
			wait 1h
			broken 0 round 7
			due 2s
			wait 1999ms
			wait 1ms -> form 2.2 worker-0, worker-2 with round 7 of rank 0, 1: worker-1 stayed away
			join 1
			state 0
			broken 1 from 1 suspect 0 round 8 -> recall worker-0, worker-2 from 2: worker-1 to join
			broken 1 from 1 suspect 0 round 8
			back 0 round 9
			back 2 round 9 -> form 3.3 worker-0, worker-2, worker-1 with round 9 of rank 0, 1: worker-1 to join`},
		{"what a newcomer brings is not the state of the world", Policy{}, three + `
			leave 1 killed -> abort worker-0, worker-2 from 1: worker-1 left: killed
			back 2 round 7
			join 1/2 round 8
			back 0 round 8 -> form 2.2 worker-0, worker-2, worker-1 with round 8 of rank 0: worker-1 left: killed
			broken 1/2 suspect 2 round 8 -> abort worker-0, worker-2 from 2: worker-1 lost its link to worker-2
			back 0 round 8
			back 2 round 8 -> form 2.3 worker-0, worker-2, worker-1 with round 8 of rank 0, 1: worker-1 lost its link to worker-2
			broken 1/2 suspect 0 round 9 -> abort worker-0, worker-2 from 3: worker-1 lost its link to worker-0
			back 0 round 8
			back 2 round 9 -> form 2.4 worker-0, worker-2, worker-1 with round 9 of rank 1, 2: worker-1 lost its link to worker-0
			back 1/2 round 8 -> abort worker-0, worker-2 from 4: worker-1 came back
			leave 0 killed
			leave 2 killed -> form 3.5 worker-1 with round 8 of rank 0: worker-1 came back`},
		{"all that has the state is what a newcomer brought", Policy{}, `
			join 0 -> form 1.1 worker-0
			join 1 round 8 -> recall worker-0 from 1: worker-1 to join
			back 0 round 9 -> form 2.2 worker-0, worker-1 with round 9 of rank 0: worker-1 to join
			leave 0 killed -> abort worker-1 from 2: worker-0 left: killed
			back 1 round 8 -> anew: nobody who has the state is left | form 3.3 worker-1: worker-0 left: killed`},
		{"a suspect comes in time", Policy{Patience: time.Second}, three + `
			broken 2 suspect 1 round 7 -> abort worker-0, worker-1 from 1: worker-2 lost its link to worker-1
			broken 0 suspect 1 round 7
			wait 999ms
			back 1 round 7 -> form 1.2 worker-0, worker-1, worker-2 with round 7 of rank 0, 1, 2: worker-2 lost its link to worker-1
			due never`},
		{"a suspect is dead", Policy{}, three + `
			broken 2 suspect 1 round 7 -> abort worker-0, worker-1 from 1: worker-2 lost its link to worker-1
			broken 0 suspect 1 round 7
			leave 1 silent -> form 2.2 worker-0, worker-2 with round 7 of rank 0, 1: worker-2 lost its link to worker-1
			due never`},
		{"nobody suspects who is missing", Policy{}, three + `
			broken 2 suspect 1 round 7 -> abort worker-0, worker-1 from 1: worker-2 lost its link to worker-1
			back 1 suspect 0 round 7
			due never
			leave 1 killed
			due never`},
		{"a suspect that cannot be spared: too few", Policy{Min: 3}, three + `
			broken 2 suspect 1 round 7 -> abort worker-0, worker-1 from 1: worker-2 lost its link to worker-1
			broken 0 suspect 1 round 7
			due never
			join 3
			due 2s
			wait 2s -> form 2.2 worker-0, worker-2, worker-3 with round 7 of rank 0, 1: worker-1 stayed away`},
		{"a suspect that cannot be spared: it has the state", Policy{}, `
			join 0 -> form 1.1 worker-0
			join 1 -> recall worker-0 from 1: worker-1 to join
			back 0 round 100 -> form 2.2 worker-0, worker-1 with round 100 of rank 0: worker-1 to join
			broken 1 suspect 0 -> abort worker-0 from 2: worker-1 lost its link to worker-0
			due never
			back 0 round 100 -> form 2.3 worker-0, worker-1 with round 100 of rank 0: worker-1 lost its link to worker-0`},
		{"two that cannot talk to each other", Policy{Attempts: 2}, three + `
			broken 0 suspect 1 round 0 -> abort worker-1, worker-2 from 1: worker-0 lost its link to worker-1
			broken 1 suspect 2 round 0
			broken 2 suspect 1 round 0 -> form 1.2 worker-0, worker-1, worker-2 with round 0 of rank 0, 1, 2: worker-0 lost its link to worker-1
			broken 2 suspect 1 round 1 -> abort worker-0, worker-1 from 2: worker-2 lost its link to worker-1
			broken 1 suspect 2 round 1
			broken 0 suspect 1 round 1 -> form 1.3 worker-0, worker-1, worker-2 with round 1 of rank 0, 1, 2: worker-2 lost its link to worker-1
			broken 1 suspect 2 round 1 -> abort worker-0, worker-2 from 3: worker-1 lost its link to worker-2
			broken 2 suspect 1 round 1
			back 0 round 1 -> form 1.4 worker-0, worker-1, worker-2 with round 1 of rank 0, 1, 2: worker-1 lost its link to worker-2
			broken 1 suspect 2 round 1 -> abort worker-0, worker-2 from 4: worker-1 lost its link to worker-2
			back 0 round 1
			broken 2 suspect 1 round 1 -> evict worker-2: suspected 2 times in 2 worlds without a round | form 2.5 worker-0, worker-1 with round 1 of rank 0, 1: worker-2 was evicted
			leave 2 deleted
			broken 2 from 4 suspect 1 round 1
			state 0
			join 2/2 -> recall worker-0, worker-1 from 5: worker-2 to join`},
		{"the most suspected goes", Policy{Attempts: 1}, three + `
			broken 0 suspect 1 round 0 -> abort worker-1, worker-2 from 1: worker-0 lost its link to worker-1
			broken 1 suspect 2 round 0
			broken 2 suspect 1 round 0 -> evict worker-1: suspected 2 times in 1 worlds without a round | form 2.2 worker-0, worker-2 with round 0 of rank 0, 1: worker-1 was evicted`},
		{"a world that broke when nothing was to be done has worked", Policy{Attempts: 2}, three + `
			broken 0 suspect 1 round 0 -> abort worker-1, worker-2 from 1: worker-0 lost its link to worker-1
			broken 1 suspect 0 round 0
			back 2 round 0 -> form 1.2 worker-0, worker-1, worker-2 with round 0 of rank 0, 1, 2: worker-0 lost its link to worker-1
			broken 0 suspect 1 round 0 -> abort worker-1, worker-2 from 2: worker-0 lost its link to worker-1
			broken 1 suspect 0 round 0 idle 1
			back 2 round 0 -> form 1.3 worker-0, worker-1, worker-2 with round 0 of rank 0, 1, 2: worker-0 lost its link to worker-1
			broken 0 suspect 1 round 0 -> abort worker-1, worker-2 from 3: worker-0 lost its link to worker-1
			broken 1 suspect 0 round 0
			back 2 round 0 -> form 1.4 worker-0, worker-1, worker-2 with round 0 of rank 0, 1, 2: worker-0 lost its link to worker-1`},
		{"who is evicted is missed", Policy{Attempts: 1, Min: 3}, three + `
			broken 0 suspect 1 round 0 -> abort worker-1, worker-2 from 1: worker-0 lost its link to worker-1
			broken 1 suspect 2 round 0
			broken 2 suspect 1 round 0 -> evict worker-1: suspected 2 times in 1 worlds without a round
			due never
			state 2 waiting for 1 of at least 3 workers
			leave 1 deleted
			join 3 -> form 2.2 worker-0, worker-2, worker-3 with round 0 of rank 0, 1: worker-1 was evicted`},
		{"the one that has the state is not evicted", Policy{Attempts: 1}, three + `
			broken 0 suspect 1 round -1 -> abort worker-1, worker-2 from 1: worker-0 lost its link to worker-1
			broken 2 suspect 1 round -1
			broken 1 suspect 0 round 0 -> evict worker-0: suspected 1 times in 1 worlds without a round | form 2.2 worker-1, worker-2 with round 0 of rank 0: worker-0 was evicted`},
		{"a world of one is not evicted", Policy{Attempts: 1}, `
			join 0 -> form 1.1 worker-0
			broken 0 round 0 -> form 1.2 worker-0 with round 0 of rank 0: worker-0 lost a link`},
		{"others are there since it broke", Policy{Attempts: 2}, `
			expect 2
			join 0
			join 1 -> form 1.1 worker-0, worker-1
			broken 0 round 0 -> abort worker-1 from 1: worker-0 lost a link
			back 1 round 0 -> form 1.2 worker-0, worker-1 with round 0 of rank 0, 1: worker-0 lost a link
			leave 0 killed -> abort worker-1 from 2: worker-0 left: killed
			leave 1 killed
			join 2
			join 3 -> anew: nobody who has the state is left | form 2.3 worker-2, worker-3: worker-0 left: killed
			broken 2 round 0 -> abort worker-3 from 3: worker-2 lost a link
			back 3 round 0 -> form 2.4 worker-2, worker-3 with round 0 of rank 0, 1: worker-2 lost a link`},
		{"others joined since it broke", Policy{Attempts: 2}, three + `
			broken 0 suspect 2 round 0 -> abort worker-1, worker-2 from 1: worker-0 lost its link to worker-2
			broken 1 suspect 2 round 0
			back 2 round 0 -> form 1.2 worker-0, worker-1, worker-2 with round 0 of rank 0, 1, 2: worker-0 lost its link to worker-2
			join 3 -> recall worker-0, worker-1, worker-2 from 2: worker-3 to join
			broken 0 suspect 2 round 0 -> abort worker-1, worker-2 from 2: worker-0 lost its link to worker-2
			broken 1 suspect 2 round 0
			back 2 round 0 -> form 2.3 worker-0, worker-1, worker-2, worker-3 with round 0 of rank 0, 1, 2: worker-0 lost its link to worker-2`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			(&stage{t, New(tt.policy), start}).play(tt.script)
		})
	}
}

// Last reports whether the state would be lost with a process.
func TestLast(t *testing.T) {
	s := &stage{t: t, r: New(Policy{}), now: start}
	last := func(want ...int) {
		t.Helper()
		var got []int
		for worker := range 4 {
			if s.r.Last(worker, 1) {
				got = append(got, worker)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("last are %v, want %v", got, want)
		}
	}
	last()
	s.play(`expect 3
		join 0
		join 1`)
	last() // no process has a state yet
	s.tell("join", "2")
	last()
	s.tell("leave", "1")
	last()
	s.tell("back", "0 round -1")
	last(2)
	s.tell("leave", "2")
	// without another member the training begins anew
	last(0)
	s.tell("join", "3")
	s.tell("leave", "0")
	s.tell("expect", "1")
	last(3)
	if s.r.Last(3, 2) {
		t.Error("another session is the last")
	}
}

// The number of processes that have left and are remembered is bounded.
func TestSessionsAreForgotten(t *testing.T) {
	r := New(Policy{})
	for w := range 5 * remembered {
		member := Member{Worker: w, Session: int64(w + 1)}
		r.Arrive(Arrival{Member: member}, start)
		r.Leave(w, member.Session, "killed", start)
		r.Arrive(Arrival{Member: member}, start) // a late arrival
	}
	if arrived, why := r.Waiting(); arrived != 0 || len(r.known) != remembered || len(r.graves) != remembered {
		t.Fatalf("%d have arrived, %s; %d known, %d graves", arrived, why, len(r.known), len(r.graves))
	}
}

// TestThousand runs a rendezvous of 1,000 workers: the first world, a newcomer, the loss of one
// worker, and the loss of all.
func TestThousand(t *testing.T) {
	const n = 1000
	r := New(Policy{})
	formed := func(actions []Action, members int) {
		t.Helper()
		if w, _ := r.World(); len(actions) == 0 || actions[len(actions)-1].Verb != Form || len(w.Members) != members {
			t.Fatalf("%v, with %d members", actions, len(w.Members))
		}
	}
	join := func(w int) []Action {
		return r.Arrive(Arrival{Member: Member{Worker: w, Session: 1}, Round: -1}, start)
	}
	back := func(round int64) (last []Action) {
		w, _ := r.World()
		for _, m := range w.Members {
			last = append(last, r.Arrive(Arrival{Member: m, Formation: w.Formation, Round: round,
				Broken: true, Suspect: 7}, start)...)
		}
		return last
	}
	var did []Action
	r.Expect(n, start)
	for w := range n {
		did = append(did, join(w)...)
	}
	formed(did, n)
	r.Expect(n+1, start)
	if did := join(n); len(did) != 1 || did[0].Verb != Recall || len(did[0].Members) != n {
		t.Fatalf("%v", did)
	}
	formed(back(1), n+1)
	if did := r.Leave(7, 0, "killed", start); len(did) != 1 || did[0].Verb != Abort || len(did[0].Members) != n {
		t.Fatalf("%v", did)
	}
	formed(back(2), n)
	for w := range n + 1 {
		did = r.Leave(w, 1, "killed", start)
	}
	if arrived, why := r.Waiting(); len(did) > 0 || arrived != 0 || why != "waiting for 1 of at least 1 workers" {
		t.Fatalf("%v; %d have arrived, %s", did, arrived, why)
	}
}
