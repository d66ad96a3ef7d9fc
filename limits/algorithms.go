package limits

import "math"

// The algorithms answer whether one more notification at time t keeps a limit.
// times are those that count against it, ascending, some later than t: clocks
// differ, and bookings wait there. A limit holds when at every one of them, and
// at t, its count of what lies before is at most limit.
//
// The answer is the count that stands against it, and the first time from t on
// at which there may be room: t itself when it fits, never when nothing helps.

// never is a time that does not come.
const never = int64(math.MaxInt64)

// slidingLog looks at the windows (x-window, x] for x = t and for every later
// time that shares a window with t.
func slidingLog(times []int64, t, window int64, limit int) (current int, next int64) {
	first, end := 0, 0 // times[first:end] lie in the window that ends at t
	for end < len(times) && times[end] <= t {
		end++
	}
	for first < end && times[first] <= t-window {
		first++
	}
	current = end - first
	if limit == 0 {
		return current, never
	}
	if current >= limit {
		return current, times[end-limit] + window
	}
	for i := end; i < len(times) && times[i] < t+window; i++ {
		for times[first] <= times[i]-window {
			first++
		}
		if n := i + 1 - first; n >= limit {
			return n, times[i+1-limit] + window
		}
	}
	return current, t
}

// fixedWindow takes the times of one window, which ends at end.
func fixedWindow(times []int64, t, end int64, limit int) (current int, next int64) {
	switch {
	case limit == 0:
		return len(times), never
	case len(times) >= limit:
		return len(times), end
	}
	return len(times), t
}

// slidingCounter looks at t, and at what lies later in its stretch and the next.
// With e ms of a stretch gone, prev in the stretch before and cur in it up to
// then, the count is cur + prev·(window-e)/window. It is compared without
// dividing.
func slidingCounter(times []int64, t, window int64, limit int) (current int, next int64) {
	start := floor(t, window)
	current, next = counterAt(times, t, t, window, limit)
	if next != t {
		return current, next
	}
	for _, x := range times {
		if x <= t || x >= start+2*window {
			continue
		}
		if n, at := counterAt(times, t, x, window, limit); at != x {
			return n, x + 1 // only behind it there may be room
		}
	}
	return current, t
}

// counterAt returns the count at x, and the earliest time at which one more, at t, may
// fit: x if it fits there.
func counterAt(times []int64, t, x, window int64, limit int) (current int, next int64) {
	start := floor(x, window)
	prev, cur := int64(0), int64(0)
	for _, at := range times {
		switch {
		case at > x || at < start-window:
		case at < start:
			prev++
		default:
			cur++
		}
	}
	left := window - (x - start)
	current = int(cur + (prev*left+window-1)/window)
	if t >= start {
		cur++
	} else {
		prev++
	}
	most := int64(limit)
	switch {
	case limit == 0:
		return current, never
	case cur*window+prev*left <= most*window:
		return current, x
	case cur <= most:
		// The weight of prev, which is not 0 then, has to fall to what cur leaves
		// free.
		if gone := window - (most-cur)*window/prev; gone < window {
			return current, start + gone
		}
	}
	return current, start + window
}
