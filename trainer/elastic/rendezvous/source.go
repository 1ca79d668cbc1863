package rendezvous

// Origin tells where the state comes from with which a world of a user's program begins.
type Origin int

// Origins.
const (
	// members have kept it, and its records are counted; or it is the initial one
	Kept Origin = iota
	// a process has read it from a checkpoint of the program: it is the first world, or all states
	// were lost
	Read
	// members have it, but a process may have read it, so that its records may not be counted
	Uncounted
)

// Counted describes how many of the records that a program has trained on are counted.
type Counted struct {
	// the program has declared a data set, so that there are records
	Declared bool
	// number of records that are counted
	Records int64
	// the count was set to a state that was read, and that state may be lost since
	Lost bool
}

// Begin decides with which state the world of a user's program begins. A state that a process has
// read from a checkpoint of its own has no [Position] here, so it counts only if no member has kept
// one: then the newest state that was read becomes the source, of equal ones that of the first
// rank. versions has the number of updates in the state of each rank, 0 for none. w is not changed.
func Begin(w World, versions []int64, c Counted) (World, Origin) {
	if len(w.Sources) > 0 {
		// it may have been read after a world of this generation had begun without training
		trained := versions[w.Sources[0]] > 0
		if c.Declared && (c.Lost || c.Records == 0 && trained) {
			return w, Uncounted
		}
		return w, Kept
	}
	newest, origin := int64(0), Kept
	for rank, version := range versions {
		if version > newest {
			w.Sources, newest, origin = []int{rank}, version, Read
		}
	}
	return w, origin
}
