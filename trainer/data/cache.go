package data

import "github.com/elasticdl/elasticdl/trainer/task"

// Blocks are kept, the last ones that were used, up to so many bytes; never
// fewer than keepBlocks, so that a task whose records are shuffled and that lies
// across some of the original's chunks of 32 MiB does not read them again for every record.
const (
	keepBytes  = 16 << 20
	keepBlocks = 4
)

type blockKey struct {
	shard string
	block task.Block
}

type cachedBlock struct {
	records [][]byte
	size    int
	used    int64
}

// cache keeps the blocks that were used last. Not for concurrent use.
type cache struct {
	blocks map[blockKey]*cachedBlock
	size   int
	now    int64
}

func (c *cache) get(key blockKey) ([][]byte, bool) {
	b, ok := c.blocks[key]
	if !ok {
		return nil, false
	}
	c.now++
	b.used = c.now
	return b.records, true
}

func (c *cache) put(key blockKey, records [][]byte) {
	if _, ok := c.blocks[key]; ok {
		return // another goroutine was faster
	}
	if c.blocks == nil {
		c.blocks = map[blockKey]*cachedBlock{}
	}
	c.now++
	b := &cachedBlock{records: records, used: c.now}
	for _, r := range records {
		b.size += len(r) + 24 // and the slice's header
	}
	c.blocks[key] = b
	for c.size += b.size; c.size > keepBytes && len(c.blocks) > keepBlocks; {
		c.evict()
	}
}

func (c *cache) evict() {
	var oldest blockKey
	used := c.now + 1
	for key, b := range c.blocks { // no two were used at the same time, so the order does not matter
		if b.used < used {
			oldest, used = key, b.used
		}
	}
	c.size -= c.blocks[oldest].size
	delete(c.blocks, oldest)
}
