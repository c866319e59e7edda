package ownership

import (
	"iter"
	"sync"
	"sync/atomic"
)

// share lets workers take ranges of [0, n) until none is left, and returns when all
// are done. Each worker is one call of work, the first in the caller's goroutine; the
// ranges that it gets depend on chance.
func share(workers, n int, work func(ranges iter.Seq2[int, int])) {
	// Who is slower takes fewer.
	const perWorker = 32
	size := 1 + n/(workers*perWorker)
	var taken atomic.Int64
	ranges := func(yield func(from, to int) bool) {
		for {
			to := int(taken.Add(int64(size)))
			from := to - size
			if from >= n || !yield(from, min(to, n)) {
				return
			}
		}
	}
	var others sync.WaitGroup
	for range min(workers, n) - 1 {
		others.Go(func() { work(ranges) })
	}
	work(ranges)
	others.Wait()
}
