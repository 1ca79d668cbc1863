package data

import "github.com/elasticdl/elasticdl/trainer/elastic/task"

// Limits of the cache. It keeps at least keepBlocks blocks, whatever their size: a task with
// shuffled records may span some chunks of 32 MiB, the default of the original RecordIO, and must
// not read a chunk again for each record.
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

// cache keeps the blocks that were used last. It is not safe for concurrent use.
type cache struct {
	blocks map[blockKey]*cachedBlock
	size   int   // bytes of all blocks
	now    int64 // number of uses so far: the clock of used
}

// get returns the records of a block, and false if they are not cached.
func (c *cache) get(key blockKey) ([][]byte, bool) {
	b, ok := c.blocks[key]
	if !ok {
		return nil, false
	}
	c.now++
	b.used = c.now
	return b.records, true
}

// put adds a block, and evicts the blocks that were not used for longest while the cache is over
// its limits.
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
		b.size += len(r) + 24 // with the slice's header
	}
	c.blocks[key] = b
	for c.size += b.size; c.size > keepBytes && len(c.blocks) > keepBlocks; {
		c.evict()
	}
}

// evict removes the block that was not used for longest.
func (c *cache) evict() {
	var oldest blockKey
	used := c.now + 1
	// each has another time of use, so the order of iteration does not matter
	for key, b := range c.blocks {
		if b.used < used {
			oldest, used = key, b.used
		}
	}
	c.size -= c.blocks[oldest].size
	delete(c.blocks, oldest)
}
