package bucket

import (
	"container/list"
	"os"
	"sync"
)

// pieceSize is the size of what is fetched and kept of an object at once.
const pieceSize = 4 << 20

// keepBytes is the size of the temporary file with the pieces of a place of data.
const keepBytes = 1 << 30

// pieceKey names a piece of an object.
type pieceKey struct {
	object string
	index  int64
}

// pieces keeps what was fetched last of the objects of a place, in a temporary file without a name,
// which the system deletes when the process ends. Without room for it, nothing is kept.
type pieces struct {
	slots int64 // how many pieces have room

	mu sync.Mutex
	// nil = none is kept yet, or none can be
	file   *os.File
	closed bool
	full   bool                       // there is no room for any piece
	known  map[pieceKey]*list.Element // elements have a *kept
	order  *list.List                 // the piece that was used last, first
}

type kept struct {
	key  pieceKey
	slot int64
	size int
}

func newPieces(limit int64) *pieces {
	return &pieces{slots: max(1, limit/pieceSize), known: map[pieceKey]*list.Element{}, order: list.New()}
}

// read reads a part of a piece that is kept, and reports whether it is.
func (p *pieces) read(key pieceKey, b []byte, offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.known[key]
	if !ok {
		return false
	}
	k := e.Value.(*kept)
	if offset+int64(len(b)) > int64(k.size) {
		return false
	}
	p.order.MoveToFront(e)
	_, err := p.file.ReadAt(b, k.slot*pieceSize+offset)
	return err == nil
}

// keep keeps a piece, in the place of the one that was used longest ago if there is no other.
func (p *pieces) keep(key pieceKey, piece []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[key] != nil || p.closed {
		return
	}
	if p.file == nil {
		file, err := os.CreateTemp("", "elasticdl-data-")
		if err != nil {
			p.full = true
			return
		}
		if err := os.Remove(file.Name()); err != nil {
			file.Close()
			p.full = true
			return
		}
		p.file = file
	}
	slot := int64(p.order.Len())
	if slot >= p.slots {
		oldest := p.order.Remove(p.order.Back()).(*kept)
		delete(p.known, oldest.key)
		slot = oldest.slot
	}
	if _, err := p.file.WriteAt(piece, slot*pieceSize); err != nil {
		// the disk is full: the slots that are there stay
		p.slots = max(1, int64(p.order.Len()))
		p.full = p.order.Len() == 0
		return
	}
	p.known[key] = p.order.PushFront(&kept{key, slot, len(piece)})
}

// able reports whether pieces can be kept.
func (p *pieces) able() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.full && !p.closed
}

// close gives the room back.
func (p *pieces) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	clear(p.known)
	p.order.Init()
	if p.file == nil {
		return nil
	}
	file := p.file
	p.file = nil
	return file.Close()
}
