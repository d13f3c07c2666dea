CREATE (oslo:Station {name: 'Oslo', platforms: 19}), (hamar:Station {name: 'Hamar', platforms: 4}),
  (otta:Station {name: 'Otta', platforms: 3}), (bergen:Station {name: 'Bergen', platforms: 5}),
  (voss:Station {name: 'Voss', platforms: 2}),
  (oslo)-[:TO {km: 126}]->(hamar), (hamar)-[:TO {km: 171}]->(otta),
  (oslo)-[:TO {km: 371}]->(voss), (voss)-[:TO {km: 100}]->(bergen);
