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

// protocol has the type of each message of a process, by its op.
var protocol = map[string]func(line []byte) (inbound, error){
	"hello":       decode[helloMessage],
	"arrive":      decode[arriveMessage],
	"round":       decode[roundMessage],
	"met":         decode[metMessage],
	"had":         decode[hadMessage],
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

// parse decodes the line of a message. With q it is a request, to which the reply repeats q. A
// message that this version does not know is nil.
func parse(line []byte) (m inbound, q *int64, err error) {
	var head struct {
		Op string `json:"op"`
		Q  *int64 `json:"q"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, nil, err
	}
	decode, ok := protocol[head.Op]
	if !ok {
		return unknownMessage{head.Op}, head.Q, nil
	}
	if m, err = decode(line); err != nil {
		return nil, head.Q, err
	}
	if m, ok := m.(interface{ check() error }); ok {
		err = m.check()
	}
	return m, head.Q, err
}

// unknownMessage is a message that this version does not know.
type unknownMessage struct{ op string }

// helloMessage is the first message on each connection.
type helloMessage struct {
	// the process enters the next world with its state
	Survives bool   `json:"survives"`
	Backend  string `json:"backend"`
	Torch    string `json:"torch"`
}

// stateRecords is a process's report of the records in a state: an epoch, a task of it, and how
// many of its records, all counted from 0, and the number of epochs before, all of whose records
// are.
type stateRecords struct {
	Ledger  [][3]int64 `json:"ledger"`
	Settled int        `json:"settled"`
}

// check refuses what the master cannot take.
func (s stateRecords) check() error {
	for _, l := range s.Ledger {
		if l[0] < 0 || l[0] >= math.MaxInt32 || l[1] < 0 || l[1] >= ledger.MaxTasks || l[2] < 0 {
			return fmt.Errorf("a ledger of %v: expected an epoch, a task and its records, none below 0", l)
		}
	}
	return nil
}

// arriveMessage says that the process waits for a world.
type arriveMessage struct {
	// of the world that it comes from; 0: of none
	Generation int64 `json:"formation"`
	// updates in its state; -1: it has none
	Round int64 `json:"round"`
	stateRecords
	// the state was read from the program's own checkpoint, and is of no world
	Read bool `json:"read"`
}

// roundMessage says that the process has ended a round.
type roundMessage struct {
	Generation int64 `json:"formation"`
	Round      int64 `json:"round"`
	// progress of its leases: pairs of lease and records
	Leases [][2]int64 `json:"leases"`
	// of its own records; nil: it had none
	Loss *float32 `json:"loss"`
}

// metMessage says that all ranks have the state with which the world began.
type metMessage struct {
	Generation int64 `json:"formation"`
}

// hadMessage says how much of leases is in the state of the process without a round of its own.
type hadMessage struct {
	Leases [][2]int64 `json:"leases"`
}

// beatMessage says that the process lives.
type beatMessage struct{}

// accountMessage says which records are in the state of every rank.
type accountMessage struct {
	Generation int64 `json:"formation"`
	stateRecords
}

// savedMessage says that a checkpoint was written.
type savedMessage struct {
	Round int64  `json:"round"`
	Path  string `json:"path"`
}

// unsavedMessage says that a checkpoint could not be written.
type unsavedMessage struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// restMessage says that all ranks have ended their last round before the job stops.
type restMessage struct {
	Round int64 `json:"round"`
	// why no checkpoint has it; "": one has
	Why string `json:"why"`
}

// doubtMessage says that the process cannot be sure of its state.
type doubtMessage struct {
	Why string `json:"why"`
}

// doneMessage says that the process has completed the training.
type doneMessage struct{}

// datasetRequest declares the data set of the job.
type datasetRequest struct {
	Size           int64  `json:"size"`
	Epochs         int32  `json:"epochs"`
	Shuffle        bool   `json:"shuffle"`
	Seed           uint64 `json:"seed"`
	RecordsPerTask int64  `json:"records_per_task"`
}

// checkpointRequest claims a checkpoint for the job.
type checkpointRequest struct {
	Path string `json:"path"`
}

// leaseRequest asks for a lease.
type leaseRequest struct{}

// worldRequest has the fields of requests that belong to a world.
type worldRequest struct {
	F int64 `json:"f"`
}

func (w worldRequest) generation() int64 { return w.F }

// explainRequest waits until the agent would know of a lost member.
type explainRequest struct{ worldRequest }

// The requests to the store of a world. Values are base64.
type (
	setRequest struct {
		worldRequest
		K string `json:"k"`
		V []byte `json:"v"`
	}
	getRequest struct {
		worldRequest
		K string `json:"k"`
	}
	waitRequest struct {
		worldRequest
		Ks []string `json:"ks"`
	}
	checkRequest struct {
		worldRequest
		Ks []string `json:"ks"`
	}
	addRequest struct {
		worldRequest
		K string `json:"k"`
		N int64  `json:"n"`
	}
	compareSetRequest struct {
		worldRequest
		K string `json:"k"`
		E []byte `json:"e"`
		V []byte `json:"v"`
	}
	deleteRequest struct {
		worldRequest
		K string `json:"k"`
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

// worldMessage tells a process its world.
type worldMessage struct {
	Generation int64             `json:"formation"`
	Rank       int               `json:"rank"`
	Size       int               `json:"size"`
	LocalRank  int               `json:"local_rank"`
	Source     int               `json:"source"`
	Addrs      []string          `json:"addrs"`
	Env        map[string]string `json:"env"`
	Settled    int32             `json:"settled"`
	Floor      int64             `json:"floor"`
}

// recallMessage tells a process to leave its world.
type recallMessage struct {
	Generation int64 `json:"formation"`
	Now        bool  `json:"now"`
}

// leaveMessage tells a process that its worker is to leave. Deadlines are seconds of Unix time.
type leaveMessage struct {
	Deadline float64 `json:"deadline"`
}

// stopMessage tells a process that the job is to stop.
type stopMessage struct {
	Deadline float64 `json:"deadline"`
}

// askMessage asks a process which records are in the state of every rank.
type askMessage struct{}

// endMessage tells a process to end.
type endMessage struct {
	Code int    `json:"code"`
	Why  string `json:"why"`
}

func (worldMessage) op() string  { return "world" }
func (recallMessage) op() string { return "recall" }
func (leaveMessage) op() string  { return "leave" }
func (stopMessage) op() string   { return "stop" }
func (askMessage) op() string    { return "account" }
func (endMessage) op() string    { return "end" }

// reply is the answer to a request.
type reply struct {
	Q  int64 `json:"q"`
	OK any   `json:"ok"`
}

// refusal is the answer to a request that has failed.
type refusal struct {
	Q   int64  `json:"q"`
	Err string `json:"err"`
	// the world of the request has ended
	Cancelled bool `json:"cancelled"`
}

// answer returns the line of the answer to a request.
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

// leaseReply grants a lease. Epochs and tasks are counted from 0.
type leaseReply struct {
	Lease  int64 `json:"lease"`
	Epoch  int32 `json:"epoch"`
	Number int64 `json:"number"`
	Start  int64 `json:"start"`
	End    int64 `json:"end"`
	// records of it that are credited
	Done int64 `json:"done"`
}

// waitReply says that there is no lease now, and overReply that there are no more.
type (
	waitReply struct {
		Wait bool `json:"wait"`
	}
	overReply struct {
		Over bool `json:"over"`
	}
)
