// The stages as endless loops on their lcores, until the data plane is told to stop.

#ifndef MAGLEV_LOOP_H
#define MAGLEV_LOOP_H

// What rte_eal_remote_launch() runs; `dataplane` is a struct dataplane. All return 0. Which worker or lane: by the lcore
// that it runs on.
int loop_steering(void *dataplane);
int loop_worker(void *dataplane);
int loop_muxing(void *dataplane);
int loop_lane(void *dataplane);

#endif
