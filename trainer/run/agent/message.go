package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// This file has the messages of trainer/run/python/PROTOCOL.md, one type for each.

// inbound is a message of a process, of one of the types in protocol.
type inbound any

// protocol has the decoder of each message of a process, by its op.
var protocol = map[string]func(line []byte) (inbound, error){
	"hello":       decode[helloMessage],
	"arrive":      decode[arriveMessage],
	"round":       decode[roundMessage],
	"met":         decode[metMessage],
	"had":         decode[stateMessage],
	"beat":        decode[beatMessage],
	"account":     decode[accountMessage],
	"saved":       decode[savedMessage],
	"unsaved":     decode[unsavedMessage],
	"rest":        decode[restMessage],
	"doubt":       decode[doubtMessage],
	"done":        decode[doneMessage],
	"dataset":     decode[datasetRequest],
	"checkpoint":  decode[checkpointRequest],
	"lease":       decode[leaseRequest],
	"explain":     decode[explainRequest],
	"set":         decode[setRequest],
	"get":         decode[getRequest],
	"wait":        decode[waitRequest],
	"check":       decode[checkRequest],
	"add":         decode[addRequest],
	"compare_set": decode[compareSetRequest],
	"delete":      decode[deleteRequest],
	"num":         decode[numRequest],
}

func decode[T any](line []byte) (inbound, error) {
	var m T
	err := json.Unmarshal(line, &m)
	return m, err
}

// parse decodes the line of a message. q is the number of the request, which the reply repeats;
// nil: the message is no request. A message of an unknown op is an [unknownMessage].
func parse(line []byte) (m inbound, q *int64, err error) {
	var head struct {
		Op      string `json:"op"`
		Request *int64 `json:"q"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, nil, err
	}
	decode, ok := protocol[head.Op]
	if !ok {
		return unknownMessage{head.Op}, head.Request, nil
	}
	if m, err = decode(line); err != nil {
		return nil, head.Request, err
	}
	if m, ok := m.(interface{ check() error }); ok {
		err = m.check()
	}
	return m, head.Request, err
}

// unknownMessage is a message that this version does not know.
type unknownMessage struct{ op string }

// helloMessage is the first message on each connection.
type helloMessage struct {
	// the process keeps its state when the world changes, and need not be restarted
	Survives bool   `json:"survives"`
	Backend  string `json:"backend"`
	Torch    string `json:"torch"`
}

// stateRecords is a process's report of the records that a state was trained with.
type stateRecords struct {
	// epoch, task of the epoch, and number of the task's records in the state; epochs and tasks are
	// counted from 0
	Ledger [][3]int64 `json:"ledger"`
	// number of settled epochs: all their records are in the state, and Ledger omits them
	Settled int `json:"settled"`
	// number of records of shards of unknown length in these epochs
	Counted int64 `json:"counted"`
}

// check returns an error for a ledger that the master cannot accept.
func (s stateRecords) check() error {
	if s.Settled < 0 || s.Counted < 0 {
		return fmt.Errorf("%d settled epochs with %d counted records: expected no number below 0", s.Settled, s.Counted)
	}
	for _, l := range s.Ledger {
		if l[0] < 0 || l[0] >= math.MaxInt32 || l[1] < 0 || l[1] >= ledger.MaxTasks || l[2] < 0 {
			return fmt.Errorf("a ledger of %v: expected an epoch, a task and its records, none below 0", l)
		}
	}
	return nil
}

// arriveMessage reports that the process waits for a world.
type arriveMessage struct {
	// generation of the world that the process comes from; 0: it was in none
	Generation int64 `json:"formation"`
	// number of updates in its state; -1: it has no state
	Round int64 `json:"round"`
	stateRecords
	// the state was read from the program's own checkpoint, and was not trained in a world since
	Read bool `json:"read"`
	// it has yet to make its model: if others train, it comes again when it has
	Early bool `json:"early"`
}

// roundMessage reports that the process has completed a round.
type roundMessage struct {
	Generation int64 `json:"formation"`
	Round      int64 `json:"round"`
	// progress of its leases: pairs of a lease and its number of trained records
	Leases [][2]int64 `json:"leases"`
	// loss of its own records; nil: it had no records in this round, or the loss is not finite
	Loss *float32 `json:"loss"`
}

// metMessage reports that all ranks have the state with which the world began.
type metMessage struct {
	Generation int64 `json:"formation"`
}

// stateMessage reports records that are in the state of the process although it has completed no
// round with them, such as after it received a newer state.
type stateMessage struct {
	// pairs of a lease and its number of records in the state
	Leases [][2]int64 `json:"leases"`
}

// beatMessage reports that the process is alive.
type beatMessage struct {
	// where its time went; nil: it does not measure that
	Spent *spentMessage `json:"spent"`
}

// accountMessage reports the records that are in the state of every rank.
type accountMessage struct {
	Generation int64 `json:"formation"`
	stateRecords
}

// savedMessage reports that a checkpoint was written.
type savedMessage struct {
	Round int64  `json:"round"`
	Path  string `json:"path"`
}

// unsavedMessage reports that a checkpoint could not be written.
type unsavedMessage struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// restMessage reports that all ranks have completed their last round before the job stops.
type restMessage struct {
	Round int64 `json:"round"`
	// why no checkpoint has this round; "": a checkpoint has it
	Why string `json:"why"`
}

// doubtMessage reports that the state of the process may be inconsistent.
type doubtMessage struct {
	Why string `json:"why"`
}

// doneMessage reports that the process has completed the training.
type doneMessage struct{}

// datasetRequest declares the data set of the job: sizes in records.
type datasetRequest struct {
	Size           int64  `json:"size"`
	Epochs         int32  `json:"epochs"`
	Shuffle        bool   `json:"shuffle"`
	Seed           uint64 `json:"seed"`
	RecordsPerTask int64  `json:"records_per_task"`
	// its records are shards of unknown length
	Stream bool `json:"stream"`
	// digest of what all processes must agree on besides; 0: none
	Digest uint64 `json:"digest"`
}

// checkpointRequest claims a checkpoint for the job.
type checkpointRequest struct {
	Path string `json:"path"`
}

// leaseRequest asks for a lease.
type leaseRequest struct{}

// worldRequest holds the field that all requests of a world have.
type worldRequest struct {
	// generation of the world
	Generation int64 `json:"f"`
}

func (w worldRequest) generation() int64 { return w.Generation }

// explainRequest asks why a collective failed. The answer comes when the agent would know of a lost
// member.
type explainRequest struct{ worldRequest }

// The requests to the key-value store of a world. In JSON, values are base64.
type (
	setRequest struct {
		worldRequest
		Key   string `json:"k"`
		Value []byte `json:"v"`
	}
	getRequest struct {
		worldRequest
		Key string `json:"k"`
	}
	waitRequest struct {
		worldRequest
		Keys []string `json:"ks"`
	}
	checkRequest struct {
		worldRequest
		Keys []string `json:"ks"`
	}
	addRequest struct {
		worldRequest
		Key   string `json:"k"`
		Delta int64  `json:"n"`
	}
	compareSetRequest struct {
		worldRequest
		Key      string `json:"k"`
		Expected []byte `json:"e"`
		Value    []byte `json:"v"`
	}
	deleteRequest struct {
		worldRequest
		Key string `json:"k"`
	}
	numRequest struct{ worldRequest }
)

// outbound is a message to a process.
type outbound interface{ op() string }

// encode returns the line of a message.
func encode(m outbound) []byte {
	body, err := json.Marshal(m)
	if err != nil {
		// cannot happen: messages hold numbers and texts
		return nil
	}
	line := fmt.Appendf(nil, `{"op":%q`, m.op())
	if len(body) > len("{}") {
		line = append(line, ',')
	}
	return append(append(line, body[1:]...), '\n')
}

// worldMessage describes a world to a process: the answer to arriveMessage.
type worldMessage struct {
	Generation int64             `json:"formation"`
	Rank       int               `json:"rank"`
	Size       int               `json:"size"`
	LocalRank  int               `json:"local_rank"`
	Source     int               `json:"source"`
	Env        map[string]string `json:"env"`
	Settled    int32             `json:"settled"`
	Floor      int64             `json:"floor"`
}

// outsideMessage answers an early arriveMessage while others train. The rank and the size are those
// that the process would have in their world.
type outsideMessage struct {
	Rank      int `json:"rank"`
	Size      int `json:"size"`
	LocalRank int `json:"local_rank"`
}

// recallMessage asks a process to leave its world, at once or after the current round.
type recallMessage struct {
	Generation int64 `json:"formation"`
	Now        bool  `json:"now"`
}

// leaveMessage notifies a process that its worker was asked to leave. Deadlines are seconds of Unix
// time.
type leaveMessage struct {
	Deadline float64 `json:"deadline"`
}

// stopMessage notifies a process that the job stops.
type stopMessage struct {
	Deadline float64 `json:"deadline"`
}

// askMessage asks a process for an accountMessage.
type askMessage struct{}

// endMessage asks a process to end with an exit code.
type endMessage struct {
	Code int    `json:"code"`
	Why  string `json:"why"`
}

func (worldMessage) op() string   { return "world" }
func (outsideMessage) op() string { return "outside" }
func (recallMessage) op() string  { return "recall" }
func (leaveMessage) op() string   { return "leave" }
func (stopMessage) op() string    { return "stop" }
func (askMessage) op() string     { return "account" }
func (endMessage) op() string     { return "end" }

// reply is the answer to a request that has succeeded.
type reply struct {
	Request int64 `json:"q"`
	OK      any   `json:"ok"`
}

// refusal is the answer to a request that has failed.
type refusal struct {
	Request int64  `json:"q"`
	Err     string `json:"err"`
	// the world of the request has ended
	Cancelled bool `json:"cancelled"`
}

// answer returns the line of the answer to request q: ok, or err.
func answer(q int64, ok any, err error) []byte {
	var line []byte
	if err != nil {
		line, _ = json.Marshal(refusal{q, err.Error(), errors.Is(err, errOver)})
	} else if line, err = json.Marshal(reply{q, ok}); err != nil {
		// cannot happen: answers hold numbers and texts
		return nil
	}
	return append(line, '\n')
}

// claimReply answers the claim of a checkpoint.
type claimReply struct {
	Claim int64 `json:"claim"`
}

// datasetReply states that a data set is accepted, and which of its fields this version knows:
// earlier ones ignore stream and digest.
type datasetReply struct {
	Stream bool `json:"stream"`
}

// leaseReply grants a lease. Epochs and tasks are counted from 0.
type leaseReply struct {
	Lease  int64 `json:"lease"`
	Epoch  int32 `json:"epoch"`
	Number int64 `json:"number"`
	Start  int64 `json:"start"`
	End    int64 `json:"end"`
	// number of its records that are credited already
	Done int64 `json:"done"`
}

// waitReply answers that there is no lease now, and overReply that there will be none any more.
type (
	waitReply struct {
		Wait bool `json:"wait"`
	}
	overReply struct {
		Over bool `json:"over"`
	}
)
