package subscriptions

import (
	"sync"
	"time"
)

// maxCached bounds the topics that a cache holds: 300 bytes each.
const maxCached = 10_000

// cache has topics that were read a moment ago. It is safe for concurrent use.
type cache struct {
	fresh time.Duration // how long one is believed
	now   func() time.Time

	mu     sync.Mutex
	topics map[string]cachedTopic // guarded by mu; by name
}

type cachedTopic struct {
	topic Topic
	until time.Time
}

func (c *cache) get(name string) (Topic, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.topics[name]
	if !ok || !c.now().Before(t.until) {
		return Topic{}, false
	}
	return t.topic, true
}

// keep holds a topic. A read that was begun before a closing and ends after it does not
// open it again.
func (c *cache) keep(t *Topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if known, ok := c.topics[t.Name]; ok && known.topic.Version > t.Version && now.Before(known.until) {
		return
	}
	if c.topics == nil || len(c.topics) >= maxCached {
		c.topics = make(map[string]cachedTopic) // names that nobody asks for go with it
	}
	c.topics[t.Name] = cachedTopic{*t, now.Add(c.fresh)}
}
